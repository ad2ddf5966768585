# Makes upstream.git in the working directory: a program of many parts, with two commits.
set -eu
export HOME=$PWD GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_NAME=A GIT_AUTHOR_EMAIL=a@example.invalid GIT_AUTHOR_DATE='2001-02-03T04:05:06Z'
export GIT_COMMITTER_NAME=C GIT_COMMITTER_EMAIL=c@example.invalid
export GIT_COMMITTER_DATE=$GIT_AUTHOR_DATE
git init --quiet --initial-branch trunk tree
cd tree
cat > Makefile <<'MAKE'
CFLAGS = -O1 -MMD
parts := $(patsubst %.c,%.o,$(wildcard part*.c))
program: main.o $(parts)
	$(CC) -o $@ $^
-include $(wildcard *.d)
MAKE
printf '*.o\n*.d\nprogram\n' > .gitignore
echo 'int sum(int);' > sum.h
{
    echo '#include <stdio.h>'
    for part in $(seq 40); do echo "int part$part(void);"; done
    echo 'int main(void) { int sum = 0;'
    for part in $(seq 40); do echo "sum += part$part();"; done
    echo 'return printf("%d\n", sum) < 0; }'
} > main.c
for part in $(seq 40); do
    printf '#include "sum.h"\nint part%d(void)\n{\n\treturn %d;\n}\n' "$part" "$part" \
        > "part$part.c"
done
git add .
git commit --quiet --message first
git tag first
for part in $(seq 2 2 40); do
    printf '#include "sum.h"\nint part%d(void)\n{\n\treturn %d * 7;\n}\n' "$part" "$part" \
        > "part$part.c"
done
git commit --quiet --all --message second
cd ..
git clone --quiet --bare tree upstream.git
rm -rf tree
