// The conformance report's logic: ids from titles, states from tests, explanations from the document.

import { expect } from 'chai';
import {
  collect,
  EXPLANATIONS_MAX,
  type Explanation,
  faultsOf,
  idsInTitle,
  parseExplanations,
  unknownIds,
} from '../../conformance/collect.js';
import { allIds, GROUPS } from '../../conformance/groups.js';

const passing = (title: string) => ({ title, passed: true });
const failing = (title: string) => ({ title, passed: false });
const explain = (id: string): Explanation => ({ id, why: 'no such thing in Node', instead: 'the nearest thing' });

describe('conformance report', () => {
  it('there are 393 ids in 24 groups, each once', () => {
    expect(GROUPS).to.have.length(24);
    expect(allIds()).to.have.length(393);
    expect(new Set(allIds()).size).to.equal(393);
    expect(allIds().slice(0, 2)).to.deep.equal(['AF-01', 'AF-02']);
    expect(allIds().at(-1)).to.equal('AE-06');
  });

  const titles: [string, string[]][] = [
    ['AC-15 four taken records return one credit of 4', ['AC-15']],
    ['AC-15: with a colon', ['AC-15']],
    ['AC-15, AC-16 both', ['AC-15', 'AC-16']],
    ['AC-15 and AC-16 both', ['AC-15', 'AC-16']],
    ['AC-15/AC-16 both', ['AC-15', 'AC-16']],
    ['AC-15 AC-16 both', ['AC-15', 'AC-16']],
    ['AC-15, AC-16, AP-01: three', ['AC-15', 'AC-16', 'AP-01']],
    ['AC-15 as AC-16 does', ['AC-15']],
    ['as AC-15 says', []],
    ['AC-155 is no id', []],
    ['ABC-15 is no id', []],
    ['"before each" hook for "AC-15 a test"', ['AC-15']],
    ['"before all" hook: start for "AC-15, AC-16 a test"', ['AC-15', 'AC-16']],
    ['"after all" hook in "a group"', []],
  ];
  for (const [title, ids] of titles) {
    it(`the title ${JSON.stringify(title)} covers ${ids.join(' and ') || 'nothing'}`, () => {
      expect(idsInTitle(title)).to.deep.equal(ids);
    });
  }

  it('an id passes when a test of it ran and none failed, in either order', () => {
    const state = collect(
      [
        passing('AP-01 a'),
        passing('AP-01 b'),
        passing('AP-02 a'),
        failing('AP-02 b'),
        failing('AP-03 a'),
        passing('AP-03 b'),
      ],
      [],
    );
    expect(state.pass).to.deep.equal(['AP-01']);
    expect(state.fail).to.deep.equal(['AP-02', 'AP-03']);
  });

  it('every id has exactly one state', () => {
    const state = collect([passing('AF-01 a'), failing('AE-06 b')], [explain('AX-09')]);
    const listed = [...state.pass, ...state.fail, ...state.missing, ...state.explained];
    expect(listed.sort()).to.deep.equal(allIds().sort());
    expect(state.explained).to.deep.equal(['AX-09']);
    expect(state.missing).to.have.length(390);
  });

  it('a test that ran outweighs an explanation', () => {
    const tests = [passing('AF-01 a'), failing('AF-02 b')];
    const explanations = [explain('AF-01'), explain('AF-02')];
    const state = collect(tests, explanations);
    expect(state).to.deep.include({ pass: ['AF-01'], fail: ['AF-02'], explained: [] });
    expect(faultsOf(explanations, state)).to.have.length(2);
  });

  it('an id that is in no group counts nowhere and is named', () => {
    const tests = [passing('AF-26 one too many'), passing('ZZ-01 invented'), passing('AF-01 known')];
    expect(collect(tests, []).pass).to.deep.equal(['AF-01']);
    expect(unknownIds(tests)).to.deep.equal(['AF-26', 'ZZ-01']);
  });

  it('explanations are the rows of the table', () => {
    const rows = parseExplanations(
      [
        '# A title',
        '| id | why | what is tested instead |',
        '|---|---|---|',
        '| AA-03 | a | b |',
        'AA-04 | x | y |',
      ].join('\n'),
    );
    expect(rows).to.deep.equal([{ id: 'AA-03', why: 'a', instead: 'b' }]);
  });

  it('a document with too many, unknown, repeated or empty rows is faulty', () => {
    const state = collect([], []);
    const judge = (explanations: Explanation[]) => faultsOf(explanations, collect([], explanations));
    expect(judge([explain('AA-01')])).to.deep.equal([]);
    expect(judge([explain('AA-01'), explain('AA-01')])).to.deep.equal(['AA-01 is explained twice']);
    expect(judge([explain('AA-09')])).to.deep.equal(['AA-09 is explained but is no known id']);
    expect(judge([{ id: 'AA-01', why: '', instead: 'b' }])).to.have.length(1);
    expect(judge(state.missing.slice(0, EXPLANATIONS_MAX + 1).map(explain))).to.have.length(1);
  });
});
