# A repository that is there already is cloned, built, changed, built again, and gets the change.
# upstream.git is what checkout_upstream.sh has made.
set -eu
cd "$APP_DIR"

export HOME=$APP_DIR GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.invalid GIT_AUTHOR_DATE='2001-02-03T04:05:06Z'
export GIT_COMMITTER_NAME=C GIT_COMMITTER_EMAIL=c@example.invalid
export GIT_COMMITTER_DATE=$GIT_AUTHOR_DATE
git config --global gc.auto 0
git config --global receive.autogc false
git config --global pack.threads 1

git -C upstream.git fsck --full --strict
git clone --quiet upstream.git work
cd work
git checkout --quiet first
make --silent -j 2
./program
git checkout --quiet trunk
make --silent -j 2
./program
# Nothing is left to do.
make --silent --question
for part in 3 14 15; do
    sed -i 's/return/return 1000 +/' "part$part.c"
done
make --silent -j 2
./program
git diff --stat
git commit --quiet --all --message 'other numbers'
git push --quiet origin trunk
git gc --quiet --prune=now
git status --short
cd ..
git -C upstream.git log --oneline --stat trunk | tail -n 8
git -C upstream.git fsck --full --strict
mv work moved
make --silent -C moved --question
find . -type f | wc -l
