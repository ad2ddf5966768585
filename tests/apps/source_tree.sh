# Program 1: a source tree is unpacked, configured, built, run, compared, copied and removed.
# APP_INPUT holds hello_*.orig.tar.gz; APP_REFERENCE is the tree of the native run, or a name that
# is not there.
set -eu
cd "$APP_DIR"

tar xzf "$APP_INPUT"/hello_*.orig.tar.gz
cd hello-*/
# No -g: debug information names the compiler's temporary files.
./configure --quiet --disable-nls CFLAGS=-O1
make --silent -j 2 V=1
# Nothing is left to do: make compares time stamps, to the nanosecond.
touch ../built
make --silent V=1
find . -newer ../built -type f
rm ../built

./hello
./hello --greeting='from the mount'
./hello --version | head -n 1
"$PWD/hello" --nonsense 2>/dev/null || echo "exit status $?"
find . -type f | wc -l
cd ..

if [ -d "$APP_REFERENCE" ]; then
    # config.log holds process numbers and the names of the compiler's temporary files.
    diff -r --exclude=config.log "$APP_REFERENCE" . >&2
fi
cp -a hello-* copy
diff -r hello-*/ copy
rm -rf copy
ls -A
