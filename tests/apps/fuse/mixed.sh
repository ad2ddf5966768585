# What a shell and a static program ($STATIC, see share.c) do to descriptors that they share, in
# the working directory and above it. What they find is printed to standard error.
exec 3<> file
echo a >&3
$STATIC write 3 "static one" where 3
echo b >&3
$STATIC where 3 seek 3 4
echo XX >&3
( $STATIC write 3 sub; echo sub2 >&3; /bin/echo dyn >&3 )
exec 4>&3
$STATIC write 4 four where 3
echo five >&4
$STATIC seek 3 0 read 3 5
read -r line <&3; echo "line $line" >&2
for i in 1 2 3; do echo "loop $i"; $STATIC write 1 "static $i
";
    /bin/echo "dyn $i"; done > loop
seq 5 | while read n; do $STATIC write 1 "n$n "; done >> loop
$STATIC cat loop
cat <<EOF | $STATIC read 0 100
pipe
EOF
$STATIC read 0 100 <<EOF
heredoc text
EOF
exec 5>> app; echo one >&5; $STATIC write 5 two where 5
echo three > app; $STATIC write 5 four; cat app >&2
$STATIC append 3; echo end >&3
cat file loop app >&2
mkdir sub; cd sub; $STATIC cat ../file > out; $STATIC write 1 text > out2; cat out2 >&2
$STATIC pause ../go write 1 "late
" >> ../late &
while ! test -e ../go; do :; done; echo parent >> ../late; rm ../go; wait; cat ../late >&2
