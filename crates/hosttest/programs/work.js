// Many files at once through the thread pool, a child, workers.
const fs = require('fs');
const cp = require('child_process');
const { Worker } = require('worker_threads');

const numbers = [...Array(300).keys()];

(async () => {
  await Promise.all(numbers.map(i => fs.promises.writeFile('f' + i, String(i))));
  const all = await Promise.all(numbers.map(i => fs.promises.readFile('f' + i, 'utf8')));
  console.log(all.reduce((a, b) => a + Number(b), 0), cp.execSync('echo child').toString().trim());
  for (let i = 0; i < 4; i++) {
    await new Promise(done => new Worker('1+1', { eval: true }).on('exit', done));
  }
  console.log(fs.readdirSync('.').length);
})();
