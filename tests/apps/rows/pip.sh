# pip: a virtual environment in the mount, and a wheel that is built on the spot put into it.
set -eu
export HOME=$APP_DIR PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_CACHE_DIR=$APP_DIR/cache
mkdir -p package/row_package
cat > package/pyproject.toml <<'TEXT'
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "row-package"
version = "1.2"
[project.scripts]
row-command = "row_package:main"
TEXT
printf 'def main():\n    print("a command of a package")\n' > package/row_package/__init__.py
"$ROW_PYTHON" -m venv venv
"$ROW_PYTHON" -m pip wheel --quiet --no-build-isolation --no-deps --wheel-dir wheels ./package
ls wheels
venv/bin/pip install --quiet --no-deps wheels/*.whl
venv/bin/row-command
venv/bin/python -c 'import row_package, sys; print(row_package.__file__[len(sys.prefix):])' |
    sed 's/python3[.0-9]*/python3/'
venv/bin/pip list --format freeze | grep row
venv/bin/pip check
venv/bin/python -m compileall -q venv/lib && echo compiled
venv/bin/pip uninstall --quiet --yes row-package
venv/bin/python -c 'import row_package' 2>&1 | tail -n 1
