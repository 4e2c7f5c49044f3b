// The forward-pass example: engines that decode many requests at once stream one token per request and pass to frontends
// in other processes, and flush once per pass. This file owns the command line's ends: arguments in, text and exit code out.
//
// Read next: forward-pass/engine.ts (the producer), forward-pass/frontend.ts (the consumer).

import { HELP, OptionError, type Options, parseOptions } from './forward-pass/options.js';
import { Progress } from './forward-pass/progress.js';
import { formatReport, makeReport } from './forward-pass/report.js';
import { runForwardPass } from './forward-pass/run.js';
import { Stopped, stopSignal } from './forward-pass/stop.js';
import { FRONTENDS, predict } from './forward-pass/workload.js';

const EXIT_FAILED = 1;
const EXIT_BAD_OPTION = 2;

async function run(options: Options): Promise<void> {
  const progress = new Progress(process.stderr, predict(options).tokens);
  progress.note(
    `${options.engines} engines, ${FRONTENDS} frontends, ${options.requests} requests, ${options.policy} policy, ` +
      `${options.host} host`,
  );
  const { measured, showcase } = await runForwardPass(options, progress, stopSignal());
  const report = makeReport(options, measured);
  if (options.json) {
    process.stdout.write(`${JSON.stringify(report)}\n`);
    return;
  }
  process.stdout.write(`\nrequest ${showcase.request}, as its frontend received it:\n\n${showcase.text}\n\n`);
  process.stdout.write(formatReport(report));
}

async function main(): Promise<number> {
  try {
    const options = parseOptions(process.argv.slice(2));
    if (options.help) process.stdout.write(HELP);
    else await run(options);
    return 0;
  } catch (error) {
    if (error instanceof Stopped) {
      process.stderr.write('stopped\n');
      return 0;
    }
    const message = error instanceof Error ? error.message : String(error);
    process.stderr.write(`forward-pass: ${message}\n`);
    return error instanceof OptionError ? EXIT_BAD_OPTION : EXIT_FAILED;
  }
}

process.exitCode = await main();
