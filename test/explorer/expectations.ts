// What a test expects of an exploration: that nothing broke in any schedule, or that a planted bug was found and that its
// printed schedule shows it again.

import { expect } from 'chai';
import { type ExploreOptions, explore, replay, type Scenario, type Violation } from './explorer.js';

/** A scenario that holds in every schedule within the bound. The number of schedules goes into the test's title. */
export function holds<T>(title: string, scenario: Scenario<T>, options: ExploreOptions = {}): void {
  it(title, function () {
    const report = explore(scenario, options);
    const { violation } = report;
    expect(violation, violation && `${violation.kind}: ${violation.message} [${violation.schedule}]`).to.equal(
      undefined,
    );
    expect(report.complete, 'every schedule within the bound was run').to.equal(true);
    if (this.test !== undefined) this.test.title += ` (${report.schedules} schedules)`;
  });
}

/** A scenario with a planted bug that some schedule shows. */
export function finds<T>(
  title: string,
  kind: Violation['kind'],
  message: RegExp,
  scenario: Scenario<T>,
  options: ExploreOptions = {},
): void {
  it(title, () => {
    const { violation } = explore(scenario, options);
    expect(violation, 'a violation').to.not.equal(undefined);
    expect(violation!.kind).to.equal(kind);
    expect(violation!.message).to.match(message);
    expect(replay(scenario, violation!.schedule, options)).to.deep.equal(violation);
  });
}
