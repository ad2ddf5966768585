# node: calls that block, promises of the thread pool, streams, modules from the mount.
set -eu
mkdir -p node_modules/row
echo 'module.exports = (x) => x * 2;' > node_modules/row/index.js
echo '{ "name": "row", "version": "1.0.0", "main": "index.js" }' > node_modules/row/package.json
cat > row.js <<'TEXT'
const fs = require('fs');
const path = require('path');
const { pipeline } = require('stream/promises');
const zlib = require('zlib');
const crypto = require('crypto');
const { execFileSync, spawn } = require('child_process');
const twice = require('row');

const root = process.env.APP_DIR;
const hash = (data) => crypto.createHash('sha256').update(data).digest('hex').slice(0, 16);

async function main() {
  fs.writeFileSync('text', 'x'.repeat(100000));
  fs.appendFileSync('text', 'end');
  console.log(fs.statSync('text').size, twice(21));
  const names = Array.from({ length: 500 }, (_, i) => path.join(root, 'many', `f${i}`));
  await fs.promises.mkdir(path.join(root, 'many'));
  await Promise.all(names.map((name, i) => fs.promises.writeFile(name, Buffer.alloc(i * 37, i))));
  const read = await Promise.all(names.map((name) => fs.promises.readFile(name)));
  console.log(read.length, hash(Buffer.concat(read)));
  await pipeline(fs.createReadStream('text'), zlib.createGzip(), fs.createWriteStream('text.gz'));
  await pipeline(fs.createReadStream('text.gz'), zlib.createGunzip(), fs.createWriteStream('back'));
  console.log(hash(fs.readFileSync('text')) === hash(fs.readFileSync('back')));
  const file = await fs.promises.open('random', 'w+');
  await file.truncate(50000);
  await file.write(Buffer.from('middle'), 0, 6, 25000);
  await file.datasync();
  console.log((await file.read(Buffer.alloc(6), 0, 6, 25000)).buffer.toString());
  await file.close();
  fs.cpSync('many', 'copied', { recursive: true });
  console.log(fs.readdirSync('copied', { withFileTypes: true }).filter((e) => e.isFile()).length);
  fs.renameSync('copied', 'moved');
  fs.symlinkSync('moved', 'link');
  console.log(fs.realpathSync('link') === path.join(fs.realpathSync(root), 'moved'));
  fs.utimesSync('text', 1, 981173106.789);
  console.log(fs.statSync('text').mtimeMs, fs.existsSync('none'));
  fs.writeFileSync('tool', '#!/bin/sh\necho from a tool\n', { mode: 0o755 });
  process.stdout.write(execFileSync(path.join(root, 'tool')));
  fs.rmSync('moved', { recursive: true });
  const directory = fs.mkdtempSync(path.join(root, 'tmp-'));
  fs.rmdirSync(directory);
  await new Promise((done) => {
    const out = fs.openSync('child', 'w');
    const child = spawn('echo', ['by a child'], { stdio: ['ignore', out, out] });
    child.on('close', done);
  });
  console.log(fs.readFileSync('child', 'utf8').trim());
  console.log(await fs.promises.readdir(root).then((all) => all.sort().join(' ')));
  try {
    fs.rmdirSync('many');
  } catch (error) {
    console.log(error.code);
  }
}

main();
TEXT
node row.js
