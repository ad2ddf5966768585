# Java: streams, channels, locks, mappings, walks and watches of files by one program.
set -eu
cat > Row.java <<'TEXT'
import java.io.*;
import java.nio.*;
import java.nio.channels.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.nio.file.attribute.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;

public class Row {
    public static void main(String[] arguments) throws Exception {
        Path root = Path.of(arguments[0]);
        Path text = root.resolve("text");
        Files.writeString(text, IntStream.range(0, 5000).mapToObj(i -> "line " + i)
            .collect(Collectors.joining("\n")));
        try (BufferedReader reader = Files.newBufferedReader(text)) {
            System.out.println(reader.lines().count() + " lines");
        }
        try (RandomAccessFile file = new RandomAccessFile(root.resolve("random").toFile(), "rw")) {
            file.setLength(1 << 20);
            file.seek(1 << 19);
            file.writeUTF("in the middle");
            file.getFD().sync();
            file.seek(1 << 19);
            System.out.println(file.readUTF() + ", " + file.length());
            FileChannel channel = file.getChannel();
            try (FileLock lock = channel.lock(0, 100, false)) {
                System.out.println("locked: " + lock.isValid());
            }
            MappedByteBuffer map = channel.map(FileChannel.MapMode.READ_WRITE, 0, 1 << 20);
            map.put(100, (byte) 42);
            map.force();
            ByteBuffer one = ByteBuffer.allocate(1);
            channel.read(one, 100);
            System.out.println("by the mapping: " + one.get(0));
            try (FileChannel to = FileChannel.open(root.resolve("moved"), StandardOpenOption.CREATE,
                     StandardOpenOption.WRITE)) {
                System.out.println("transferred: " + channel.transferTo(0, channel.size(), to));
            }
        }
        System.out.println("different at: " + Files.mismatch(root.resolve("random"),
            root.resolve("moved")));
        ExecutorService pool = Executors.newFixedThreadPool(8);
        List<Future<Long>> sizes = new ArrayList<>();
        for (int i = 0; i < 200; i++) {
            int number = i;
            sizes.add(pool.submit(() -> {
                Path directory = Files.createDirectories(root.resolve("d" + number % 7));
                Path path = directory.resolve("f" + number);
                Files.write(path, new byte[number * 50]);
                Files.move(path, path.resolveSibling("g" + number), StandardCopyOption.ATOMIC_MOVE);
                return Files.size(path.resolveSibling("g" + number));
            }));
        }
        long sum = 0;
        for (Future<Long> size : sizes) sum += size.get();
        pool.shutdown();
        System.out.println("sum of sizes: " + sum);
        try (Stream<Path> walk = Files.walk(root)) {
            System.out.println(walk.filter(Files::isRegularFile).count() + " files");
        }
        Files.setLastModifiedTime(text, FileTime.fromMillis(981173106789L));
        Files.setPosixFilePermissions(text, PosixFilePermissions.fromString("rw-r-----"));
        PosixFileAttributes attributes = Files.readAttributes(text, PosixFileAttributes.class);
        System.out.println(attributes.lastModifiedTime() + " "
            + PosixFilePermissions.toString(attributes.permissions()));
        Files.createSymbolicLink(root.resolve("link"), Path.of("text"));
        Files.createLink(root.resolve("hard"), text);
        System.out.println(Files.isSameFile(root.resolve("link"), root.resolve("hard")));
        UserDefinedFileAttributeView view =
            Files.getFileAttributeView(text, UserDefinedFileAttributeView.class);
        view.write("key", StandardCharsets.UTF_8.encode("value"));
        System.out.println(view.list() + " " + view.size("key"));
        Path temporary = Files.createTempFile(root, "t", null);
        Files.copy(text, temporary, StandardCopyOption.REPLACE_EXISTING);
        System.out.println(Files.mismatch(text, temporary));
        try {
            Files.createDirectory(root.resolve("d1"));
        } catch (FileAlreadyExistsException error) {
            System.out.println("exists");
        }
    }
}
TEXT
java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 Row.java "$APP_DIR"
ls | wc -l
