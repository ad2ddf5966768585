/* fork, vfork, posix_spawn, exec, and what children inherit. */
#include "check.h"
#include <dlfcn.h>

extern char **environ;

CHECK(a_child_shares_offsets_and_not_new_files)
{
	int fd = make_file("file", "0123456789");
	SHOW(lseek(fd, 2, SEEK_SET));
	pid_t pid = fork();
	if (pid == 0) {
		show_read(fd, 3);
		SHOW(open("child", O_CREAT | O_RDWR, 0600));
		SHOW(chdir(".."));
		SHOW(close(fd));
		_exit(0);
	}
	reap(pid);
	SHOW(lseek(fd, 0, SEEK_CUR));
	SHOW(fcntl(fd + 1, F_GETFD));
	show_read(fd, 2);
	show_names(".");
	reap(spawn_self((char *[]){"calls", "--read", (char[2]){'0' + fd, 0}, NULL}));
	SHOW(lseek(fd, 0, SEEK_CUR));
}

CHECK(exec_keeps_descriptors_but_those_marked)
{
	int kept = make_file("kept", "0123456789");
	SHOW(fcntl(kept, F_SETFD, 0));
	open("kept", O_RDONLY | O_CLOEXEC);
	dup(kept);
	open("/dev/null", O_RDONLY);
	reap(spawn_self((char *[]){"calls", "--fds", NULL}));
	SHOW(lseek(kept, 4, SEEK_SET));
	reap(spawn_self((char *[]){"calls", "--write", (char[2]){'0' + kept, 0}, "ab", NULL}));
	SHOW(lseek(kept, 0, SEEK_CUR));
	show_file("kept");
}

CHECK(a_vfork_child_changes_nothing_of_its_parents)
{
	int fd = make_file("file", "0123456789"), other = make_file("other", "abcdef");
	SHOW(fcntl(fd, F_SETFD, 0)), SHOW(fcntl(other, F_SETFD, 0));
	SHOW(lseek(fd, 2, SEEK_SET)), SHOW(lseek(other, 1, SEEK_SET));
	SHOW(mkdir("dir", 0755));
	char number[2] = {'0' + fd, 0};
	pid_t pid = vfork();
	if (pid == 0) {
		dup2(other, fd);
		close(other);
		chdir("dir");
		execv(self, (char *[]){"calls", "--read", number, NULL});
		_exit(98);
	}
	reap(pid);
	SHOW(lseek(fd, 0, SEEK_CUR));
	SHOW(lseek(other, 0, SEEK_CUR));
	show_names(".");
	pid = vfork();
	if (pid == 0) {
		execv("none", (char *[]){"none", NULL});
		_exit(errno == ENOENT ? 5 : 6);
	}
	reap(pid);
	show_read(fd, 3);
}

CHECK(posix_spawn_performs_its_file_actions)
{
	SHOW(mkdir("dir", 0755));
	int fd = make_file("file", "0123456789");
	pid_t pid;
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 1, "out", O_CREAT | O_WRONLY, 0600);
	posix_spawn_file_actions_adddup2(&actions, fd, 7);
	posix_spawn_file_actions_addclose(&actions, fd);
	posix_spawn_file_actions_addchdir_np(&actions, "dir");
	posix_spawn_file_actions_addopen(&actions, 8, "made", O_CREAT | O_RDWR, 0600);
	static char *const fds[] = {"calls", "--fds", NULL}, *const in[] = {"calls", "--where", NULL};
	SHOW(posix_spawn(&pid, self, &actions, NULL, fds, environ));
	reap(pid);
	show_file("out");
	SHOW(unlink("out"));
	SHOW(posix_spawn(&pid, self, &actions, NULL, in, environ));
	reap(pid);
	show_file("out");
	posix_spawn_file_actions_addopen(&actions, 9, "none", O_RDONLY, 0);
	SHOW(posix_spawn(&pid, self, &actions, NULL, in, environ));
	posix_spawn_file_actions_destroy(&actions);
	show_names("."), show_names("dir");
}

static void try_exec(const char *path, char *const words[])
{
	pid_t pid = fork();
	if (pid == 0) {
		execv(path, words);
		say("exec %s: %s", path, strerrorname_np(errno));
		_exit(9);
	}
	reap(pid);
}

static void make_script(const char *path, const char *content)
{
	close(make_file(path, content));
	SHOW(chmod(path, 0755));
}

CHECK(programs_and_scripts_in_the_mount_are_executed)
{
	copy_program(self, "program");
	char *words[] = {"zero", "--who", "one", NULL};
	try_exec("program", words);
	try_exec("./program", words);
	SHOW(symlink("program", "link"));
	try_exec("link", words);
	make_script("script", "#!/bin/sh\necho \"script $0 $1 $2\"\n");
	try_exec("./script", words);
	make_script("own", "#!program --who\n");
	try_exec("./own", words);
	make_script("nested", "#!./own\n");
	try_exec("./nested", words);
	char here[4000], line[4100];
	snprintf(line, sizeof line, "#!%s/program --who\n", getcwd(here, sizeof here));
	make_script("absolute", line);
	try_exec("./absolute", words);
	make_script("no-interpreter", "#!/none/such\n");
	try_exec("./no-interpreter", words);
	make_script("empty", "");
	try_exec("./empty", words);
	make_script("text", "echo no interpreter line\n");
	try_exec("./text", words);
	close(make_file("plain", "#!/bin/sh\n"));
	try_exec("./plain", words);
	try_exec("none", words);
	try_exec("program/x", words);
	try_exec(".", words);
	SHOW(mkdir("dir", 0755));
	SHOW(chdir("dir"));
	try_exec("../program", words);
	fflush(NULL);
	SHOW(system("../script a b"));
}

CHECK(a_small_program_is_executed_from_the_mount)
{
	const char *small = getenv("CALLS_SMALL");
	copy_program(small, "small");
	struct stat stat_;
	SHOW(stat("small", &stat_));
	say("small enough %d", stat_.st_size <= 20000);
	try_exec("./small", (char *[]){"small", NULL});
}

CHECK(execveat_executes_descriptors_and_relative_names)
{
	copy_program(self, "program");
	SHOW(mkdir("dir", 0755));
	SHOW(rename("program", "dir/program"));
	int dir = open("dir", O_RDONLY | O_DIRECTORY), fd = open("dir/program", O_RDONLY);
	char *words[] = {"zero", "--fds", NULL};
	pid_t pid = fork();
	if (pid == 0) {
		execveat(dir, "program", words, environ, 0);
		_exit(9);
	}
	reap(pid);
	pid = fork();
	if (pid == 0) {
		fexecve(fd, words, environ);
		_exit(9);
	}
	reap(pid);
	pid = fork();
	if (pid == 0) {
		execveat(AT_FDCWD, self, words, environ, 0);
		_exit(9);
	}
	reap(pid);
	SHOW(execveat(dir, "none", words, environ, 0));
	SHOW(execveat(dir, "", words, environ, 0));
}

CHECK(a_library_in_the_mount_can_be_loaded)
{
	copy_program(getenv("CALLS_LIBRARY"), "library.so");
	void *library = dlopen("./library.so", RTLD_NOW);
	SHOW(library != NULL);
	int (*answer)(void) = library ? (int (*)(void))dlsym(library, "answer") : NULL;
	SHOW(answer ? answer() : -2);
}

CHECK(a_running_program_can_be_removed_and_replaced)
{
	copy_program(self, "program");
	int ends[2];
	SHOW(pipe(ends));
	SHOW(dup2(ends[0], 9));
	pid_t pid = fork();
	if (pid == 0) {
		close(ends[1]);
		execv("program", (char *[]){"program", "--read", "9", NULL});
		_exit(9);
	}
	pause_ms(100);
	SHOW(unlink("program"));
	close(make_file("program", "other"));
	write(ends[1], "abc", 3);
	reap(pid);
	show_file("program");
}

CHECK(standard_output_in_the_mount_is_shared_in_order)
{
	int saved = dup(1);
	SHOW(dup2(open("out", O_CREAT | O_WRONLY, 0600), 1));
	say("one");
	system("echo two; /bin/echo three; (echo four); echo five | cat");
	say("six");
	SHOW(dup2(saved, 1));
	show_file("out");
	FILE *pipe = popen("cat out; pwd", "r");
	char line[5000];
	while (fgets(line, sizeof line, pipe)) {
		line[strcspn(line, "\n")] = 0;
		say("%s", line);
	}
	SHOW(pclose(pipe));
}

static int share(void *argument)
{
	(void)argument;
	return open("shared", O_RDONLY) >= 0 ? 0 : 1;
}

CHECK(a_clone_with_a_stack_of_its_own_sees_the_files)
{
	close(make_file("shared", "text"));
	static char stack[1 << 18];
	pid_t pid = clone(share, stack + sizeof stack, SIGCHLD, NULL);
	reap(pid);
	pid = clone(share, stack + sizeof stack, SIGCHLD | CLONE_VM | CLONE_VFORK, NULL);
	reap(pid);
	SHOW(open("shared", O_RDONLY));
}

static void show_group(const char *name)
{
	struct stat found;
	close(open(name, O_CREAT | O_WRONLY, 0666));
	if (stat(name, &found) == 0)
		say("%s: group %ld", name, (long)found.st_gid);
}

static void *make_as_another(void *group)
{
	if (syscall(SYS_setresgid, -1L, (long)(intptr_t)group, -1L) != 0)
		say("setresgid refused");
	show_group("by-thread");
	return NULL;
}

static void *change_the_process(void *group)
{
	if (setegid((gid_t)(intptr_t)group) != 0)
		say("setegid refused");
	return NULL;
}

/* Of a thread, by the system call, or of all of them, by the C library: whoever changes the group,
 * new files have that of the thread that makes them. */
CHECK(new_files_have_the_group_that_a_thread_has_then)
{
	pthread_t thread;
	gid_t own = getegid(), another = geteuid() == 0 ? 4711 : own;
	show_group("first");
	pthread_create(&thread, NULL, make_as_another, (void *)(intptr_t)another);
	pthread_join(thread, NULL);
	show_group("by-this");
	pthread_create(&thread, NULL, change_the_process, (void *)(intptr_t)another);
	pthread_join(thread, NULL);
	show_group("by-all");
	fflush(stdout);
	if (fork() == 0) {
		show_group("by-child");
		if (setegid(own) != 0)
			say("setegid refused");
		show_group("by-child-again");
		fflush(stdout);
		_exit(0);
	}
	wait(NULL);
	show_group("by-parent");
	if (setegid(own) != 0)
		say("setegid refused");
	show_group("last");
}
