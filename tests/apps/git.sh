# Program 2: a repository of a few thousand files is made, checked, packed and cloned.
set -eu
cd "$APP_DIR"

export HOME=$APP_DIR GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.invalid GIT_AUTHOR_DATE='2001-02-03T04:05:06Z'
export GIT_COMMITTER_NAME=C GIT_COMMITTER_EMAIL=c@example.invalid
export GIT_COMMITTER_DATE=$GIT_AUTHOR_DATE
git config --global init.defaultBranch trunk
git config --global gc.auto 0
git config --global pack.threads 1
git config --global core.untrackedCache false
# What was just written must not be taken for changed or unchanged by the clock's grain.
git config --global core.trustctime false

git init --quiet origin
cd origin
for directory in $(seq 30); do
    mkdir -p "src/part$directory"
    for file in $(seq 100); do
        printf 'file %d of part %d\n%*d\n' "$file" "$directory" $((file * 7)) "$directory" \
            > "src/part$directory/file$file.txt"
    done
done
ln -s src/part4 link
printf '#!/bin/sh\necho tool\n' > tool.sh
chmod +x tool.sh

git add .
git commit --quiet --message 'everything'
git mv src/part1 src/moved
rm -r src/part2
echo more >> src/part3/file1.txt
git status --short | sort | sha256sum
git commit --quiet --all --message 'moved, removed, changed'
git log --oneline --stat | tail -n 3
git fsck --full --strict
git ls-files --stage | sha256sum

echo unsaved >> src/part5/file5.txt
git stash --quiet
git status --short
git stash pop --quiet
git status --short
git checkout --quiet src
git checkout --quiet HEAD~1
git ls-files | wc -l
git checkout --quiet trunk
git repack -adq
git fsck --full
cd ..

# A plain local clone links objects; the other one goes through a pipe and index-pack.
git clone --quiet origin linked
git clone --quiet --no-local origin copied
diff -r --exclude=.git linked copied
for clone in linked copied; do
    git -C $clone fsck --full
    git -C $clone rev-parse HEAD
    git -C $clone status --short
done
./copied/tool.sh
