# git with every kind of fsync that it knows, in both methods.
set -eu
export HOME=$APP_DIR GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.invalid
export GIT_COMMITTER_NAME=C GIT_COMMITTER_EMAIL=c@example.invalid
export GIT_AUTHOR_DATE='2001-02-03T04:05:06Z' GIT_COMMITTER_DATE='2001-02-03T04:05:06Z'
git config --global init.defaultBranch trunk
git config --global core.fsync all
for method in fsync batch writeout-only; do
    git init --quiet $method
    cd $method
    git config core.fsyncMethod $method
    for n in $(seq 100); do echo "file $n" > "f$n"; done
    git add . && git commit --quiet --message one
    git mv f1 g1 && echo more >> f2 && git commit --quiet --all --message two
    git gc --quiet --prune=now
    git fsck --full --strict
    git worktree add --quiet ../$method-tree HEAD~1 && ls ../$method-tree | wc -l
    git rev-parse HEAD
    git status --short
    cd ..
done
