/* Runs one check: `calls DIRECTORY NAME`; `calls --list`; the rest is for children of checks. */
#include "check.h"

extern const struct check __start_checks[], __stop_checks[];
const char *self;

void say(const char *format, ...)
{
	char line[2048];
	va_list arguments;
	va_start(arguments, format);
	int count = vsnprintf(line, sizeof line - 1, format, arguments);
	va_end(arguments);
	if (count > (int)sizeof line - 2)
		count = sizeof line - 2;
	line[count] = '\n';
	/* One write each: lines of several processes stay whole. */
	if (write(1, line, count + 1) < 0)
		_exit(99);
}

long show(const char *text, long value)
{
	int error = errno;
	if (value == -1 && error != 0)
		say("%s = %s", text, strerrorname_np(error));
	else
		say("%s = %ld", text, value);
	return value;
}

long refused(const char *text, long value, int error)
{
	if (value != -1 || errno != error)
		say("WRONG %s = %ld %s, not %s", text, value, strerrorname_np(errno),
		    strerrorname_np(error));
	return value;
}

long is(const char *text, long value, long expected)
{
	if (value != expected)
		say("WRONG %s = %ld %s, not %ld", text, value,
		    value == -1 ? strerrorname_np(errno) : "", expected);
	return value;
}

static void show_attributes(const char *what, int result, const struct stat *stat)
{
	if (result != 0)
		say("stat %s = %s", what, strerrorname_np(errno));
	else if (S_ISDIR(stat->st_mode))
		say("stat %s = %o links %ld", what, stat->st_mode, (long)stat->st_nlink);
	else
		say("stat %s = %o links %ld size %ld owner %d", what, stat->st_mode,
		    (long)stat->st_nlink, (long)stat->st_size, stat->st_uid == geteuid());
}

void show_stat(const char *path)
{
	struct stat stat;
	show_attributes(path, lstat(path, &stat), &stat);
}

void show_fstat(int fd)
{
	struct stat stat;
	char what[16];
	snprintf(what, sizeof what, "%d", fd);
	show_attributes(what, fstat(fd, &stat), &stat);
}

void show_bytes(const char *what, const void *bytes, long count)
{
	if (count < 0) {
		say("%s: %s", what, strerrorname_np(errno));
		return;
	}
	const unsigned char *byte = bytes;
	uint64_t digest = 0xcbf29ce484222325;
	int plain = count <= 64;
	for (long at = 0; at < count; at++) {
		digest = (digest ^ byte[at]) * 0x100000001b3;
		plain = plain && byte[at] >= ' ' && byte[at] < 127;
	}
	if (plain)
		say("%s: %ld bytes \"%.*s\"", what, count, (int)count, (const char *)bytes);
	else
		say("%s: %ld bytes %016lx", what, count, digest);
}

void show_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		say("file %s = %s", path, strerrorname_np(errno));
		return;
	}
	size_t room = 64 << 20, count = 0;
	char *bytes = malloc(room);
	ssize_t more;
	while (count < room && (more = read(fd, bytes + count, room - count)) > 0)
		count += more;
	show_bytes(path, bytes, count);
	free(bytes);
	close(fd);
}

void show_read(int fd, size_t count)
{
	char *bytes = malloc(count + 1);
	ssize_t done = read(fd, bytes, count);
	char what[32];
	snprintf(what, sizeof what, "read %d", fd);
	show_bytes(what, bytes, done);
	free(bytes);
}

static int by_text(const void *one, const void *two)
{
	return strcmp(*(char *const *)one, *(char *const *)two);
}

void show_names(const char *path)
{
	DIR *stream = opendir(path);
	if (!stream) {
		say("names %s = %s", path, strerrorname_np(errno));
		return;
	}
	char *names[256];
	size_t count = 0;
	struct dirent *entry;
	while (count < 256 && (entry = readdir(stream))) {
		char *name = malloc(300);
		snprintf(name, 300, "%s:%d", entry->d_name, entry->d_type);
		names[count++] = name;
	}
	closedir(stream);
	qsort(names, count, sizeof *names, by_text);
	char line[1500] = "";
	for (size_t at = 0; at < count; at++) {
		strncat(line, " ", sizeof line - strlen(line) - 1);
		strncat(line, names[at], sizeof line - strlen(line) - 1);
		free(names[at]);
	}
	say("names %s =%s", path, line);
}

int make_file(const char *path, const char *content)
{
	int fd = open(path, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0644);
	if (fd < 0 || write(fd, content, strlen(content)) != (ssize_t)strlen(content))
		say("make %s: %s", path, strerrorname_np(errno));
	return fd;
}

void make_large(const char *path, size_t bytes)
{
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
	unsigned char *content = malloc(bytes);
	for (size_t at = 0; at < bytes; at++)
		content[at] = at * 31 + at / 251;
	for (size_t at = 0; at < bytes;) {
		ssize_t done = write(fd, content + at, bytes - at);
		if (done <= 0) {
			say("make %s: %s", path, strerrorname_np(errno));
			break;
		}
		at += done;
	}
	free(content);
	close(fd);
}

void reap(pid_t pid)
{
	int status = 0;
	pid_t ended;
	while ((ended = waitpid(pid, &status, 0)) < 0 && errno == EINTR)
		;
	if (ended != pid)
		say("child: %s", strerrorname_np(errno));
	else if (WIFSIGNALED(status))
		say("child: signal %d", WTERMSIG(status));
	else
		say("child: %d", WEXITSTATUS(status));
}

pid_t spawn_self(char *const arguments[])
{
	pid_t pid = fork();
	if (pid == 0) {
		execv(self, arguments);
		_exit(98);
	}
	return pid;
}

void copy_program(const char *from, const char *to)
{
	int source = open(from, O_RDONLY | O_CLOEXEC);
	int target = open(to, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0755);
	static char bytes[1 << 16];
	ssize_t count;
	while ((count = read(source, bytes, sizeof bytes)) > 0)
		if (write(target, bytes, count) != count)
			say("copy %s: %s", to, strerrorname_np(errno));
	close(source);
	close(target);
}

void pause_ms(int ms)
{
	struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
	while (nanosleep(&time, &time) != 0 && errno == EINTR)
		;
}

/* What a child does that was started by exec. */
static int child(int count, char **words)
{
	if (strcmp(words[0], "--read") == 0) {
		show_read(atoi(words[1]), 5);
	} else if (strcmp(words[0], "--write") == 0) {
		SHOW(write(atoi(words[1]), words[2], strlen(words[2])));
	} else if (strcmp(words[0], "--where") == 0) {
		char path[4096];
		say("in %s", getcwd(path, sizeof path) ? path : strerrorname_np(errno));
		show_names(".");
	} else if (strcmp(words[0], "--fds") == 0) {
		for (int fd = 3; fd < 40; fd++)
			if (fcntl(fd, F_GETFD) >= 0)
				say("open: %d", fd);
	} else if (strcmp(words[0], "--lowest") == 0) {
		int one = open(words[1], O_RDONLY), two = open(words[1], O_RDONLY);
		char byte = 0;
		return pread(two, &byte, 1, 1) == 1 && byte == 'b' ? one * 10 + two : 99;
	} else if (strcmp(words[0], "--who") == 0) {
		char path[4096];
		ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
		path[length > 0 ? length : 0] = 0;
		say("I am %s", path);
		for (int at = 1; at < count; at++)
			say("argument %s", words[at]);
	}
	return 0;
}

int main(int count, char **words)
{
	static char path[4096];
	ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
	path[length > 0 ? length : 0] = 0;
	self = path;
	if (count > 1 && strcmp(words[1], "--list") == 0) {
		for (const struct check *check = __start_checks; check < __stop_checks; check++)
			say("%s", check->name);
		return 0;
	}
	if (count > 1 && words[1][0] == '-')
		return child(count - 1, words + 1);
	if (count != 3)
		return 2;
	umask(022);
	alarm(60);
	if (chdir(words[1]) != 0 || mkdir("d", 0755) != 0 || chdir("d") != 0) {
		say("%s: %s", words[1], strerrorname_np(errno));
		return 1;
	}
	for (const struct check *check = __start_checks; check < __stop_checks; check++) {
		if (strcmp(check->name, words[2]) == 0) {
			check->run();
			say("end");
			return 0;
		}
	}
	return 3;
}
