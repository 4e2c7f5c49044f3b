// Side by side with the real velo: the same workloads over velo ↔ velo, velomux ↔ velomux and both mixed pairs, in one run, interleaved.
// Owns the command line and the table. Must never write to stdout anything but the report; progress goes to stderr.

import { parseArgs } from 'node:util';
import { machine } from '../../../native-free-bench/report.js';
import { formatNumber, formatSpread, formatTable, median, ratio, spread } from '../../../native-free-bench/stats.js';
import { buildPeer, Skipped } from '../build.js';
import { type Figures, type Pairing, runOnce, WORKLOADS, type Workload } from './runs.js';

const PAIRINGS: readonly Pairing[] = [
  { from: 'velo', to: 'velo' },
  { from: 'velomux', to: 'velomux' },
  { from: 'velo', to: 'velomux' },
  { from: 'velomux', to: 'velo' },
  { from: 'inline', to: 'inline' },
];
const pairName = ({ from, to }: Pairing): string => `${from} → ${to}`;
/** Rotation of the order between rounds. */
const ROTATION = 2;

const USAGE = `Usage: npm run bench:rust -- [options]

  --rounds n      rounds; pairings alternate within a workload, in rotating order (3)
  --seconds s     measured length of one run, about (2)
  --only text     workloads whose name contains the text
  --pairs a,b     pairings by number: ${PAIRINGS.map((pair, i) => `${i} ${pairName(pair)}`).join(', ')} (all)
  --profile       the Node sides write CPU profiles into the current folder
  --json          one JSON object on stdout and nothing else
  --help

velo is the published crate; velomux has one lane on a worker thread, inline has it on the main thread. Credit 32, manual flush, loopback
TCP, two processes. CPU is user and system time of one side's process, per token, call or message.
`;

const FIGURES = [
  { key: 'perSecond', title: 'per second', digits: 0 },
  { key: 'p50Us', title: 'p50 µs', digits: 0 },
  { key: 'p99Us', title: 'p99 µs', digits: 0 },
  { key: 'cpuFromUs', title: 'CPU µs, sender', digits: 2 },
  { key: 'cpuToUs', title: 'CPU µs, receiver', digits: 2 },
] as const;

interface Cell {
  readonly workload: string;
  readonly pair: string;
  readonly runs: Figures[];
}

function cellsTable(cells: readonly Cell[]): string {
  const used = FIGURES.filter(({ key }) => cells.some((cell) => cell.runs.some((run) => key in run)));
  const body = cells.map((cell) => [
    cell.pair,
    ...used.map(({ key, digits }) => formatSpread(spread(cell.runs.map((run) => run[key] ?? null)), digits)),
  ]);
  return formatTable(['pair', ...used.map(({ title }) => title)], body);
}

/** What velomux reaches of velo, both on both sides. */
function share(cells: readonly Cell[], key: 'perSecond' | 'p50Us'): number | null {
  const of = (pair: string) => {
    const values = cells.find((cell) => cell.pair === pair)?.runs.flatMap((run) => run[key] ?? []) ?? [];
    return values.length === 0 ? null : median(values);
  };
  return ratio(of('velomux → velomux'), of('velo → velo'));
}

function report(workloads: readonly Workload[], cells: readonly Cell[]): string {
  const { cpu, cores, memoryGiB, node, kernel } = machine();
  const sections = workloads.map(({ name }) => {
    const own = cells.filter((cell) => cell.workload === name);
    const [rate, late] = [share(own, 'perSecond'), share(own, 'p50Us')];
    const ratios = [
      rate === null ? '' : `rate, velomux / velo: ${formatNumber(rate, 2)}`,
      late === null ? '' : `p50, velomux / velo: ${formatNumber(late, 2)}`,
    ].filter((text) => text !== '');
    return `${name}\n\n${cellsTable(own)}\n${ratios.join('; ')}`;
  });
  return [`${cpu}, ${cores} cores, ${memoryGiB} GiB, kernel ${kernel}, Node ${node}`, ...sections].join('\n\n');
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      rounds: { type: 'string', default: '3' },
      seconds: { type: 'string', default: '2' },
      only: { type: 'string', default: '' },
      pairs: { type: 'string', default: PAIRINGS.map((_, i) => i).join(',') },
      profile: { type: 'boolean', default: false },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  const workloads = WORKLOADS.filter(({ name }) => name.includes(values.only));
  const pairings = values.pairs.split(',').map((text) => PAIRINGS[Number(text)]);
  const [rounds, seconds] = [Number(values.rounds), Number(values.seconds)];
  const bad = pairings.includes(undefined) || !(rounds >= 1) || !(seconds > 0) || workloads.length === 0;
  if (values.help || bad) {
    (bad ? process.stderr : process.stdout).write(USAGE);
    process.exitCode = bad ? 2 : 0;
    return;
  }
  const program = await buildPeer();
  const cells: Cell[] = workloads.flatMap(({ name }) =>
    pairings.map((pair) => ({ workload: name, pair: pairName(pair!), runs: [] })),
  );
  for (let round = 0; round < rounds; round++) {
    for (const workload of workloads) {
      for (let k = 0; k < pairings.length; k++) {
        const pairing = pairings[(k + round * ROTATION) % pairings.length]!;
        const figures = await runOnce(workload, pairing, seconds, program, values.profile);
        cells.find((cell) => cell.workload === workload.name && cell.pair === pairName(pairing))!.runs.push(figures);
        process.stderr.write(
          `round ${round + 1}/${rounds}  ${workload.name}  ${pairName(pairing)}  ${JSON.stringify(figures)}\n`,
        );
      }
    }
  }
  process.stdout.write(
    values.json ? `${JSON.stringify({ machine: machine(), cells })}\n` : `${report(workloads, cells)}\n`,
  );
}

try {
  await main();
} catch (error) {
  if (error instanceof Skipped) process.stdout.write(`benchmark skipped: ${error.message}\n`);
  else {
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
    process.exitCode = 1;
  }
}
