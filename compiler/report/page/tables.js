// The figures at the top and the tables: what is kept, what is computed again, what makes the peak.
function fillTable(id, heads, rows, foot) {
  const cell = (value, n, tag) => element(tag, {...(heads[n][1] ? {class: 'number'} : {}), ...(tag === 'th' ? {scope: 'col'} : {})}, value);
  const table = $(id);
  table.replaceChildren(element('thead', {}, element('tr', {}, ...heads.map((h, n) => cell(h[0], n, 'th')))),
    element('tbody', {}, ...rows.map(r => element('tr', r.this ? {class: 'this'} : {}, ...r.cells.map((v, n) => cell(v, n, 'td'))))));
  if (foot) table.append(element('tfoot', {}, element('tr', {}, ...foot.map((v, n) => cell(v, n, 'td')))));
}
function nameCell(name) {
  const word = wordOf(name);
  return word ? element('span', {}, name, element('span', {class: 'word'}, ' ' + word)) : name;
}
function sourceCell(line, library, name) {
  const span = element('span', {});
  const text = lineText(line);
  if (line > 0) span.append(placeText(line) + ' ', element('code', {title: text}, text.length > 52 ? text.slice(0, 51) + '\u2026' : text));
  if (library > 0) {
    const inside = libraryText(library);
    span.append(element('span', {class: 'library', title: inside}, libraryPlace(library, name) + ' ', element('code', {}, inside.length > 46 ? inside.slice(0, 45) + '\u2026' : inside)));
  }
  return span;
}
// Equal lines of the blocks of a `repeat` become one row.
function grouped(list) {
  const rows = new Map();
  for (const e of list) {
    const name = generalName(e.name), key = name + '\n' + e.line + '\n' + e.library_line;
    if (!rows.has(key)) rows.set(key, {name, line: e.line, library: e.library_line, count: 0, times: 0, bytes: 0, seconds: 0});
    const row = rows.get(key);
    row.count += 1, row.times += e.times || 0, row.bytes += e.bytes, row.seconds += e.seconds;
  }
  return [...rows.values()];
}
const sumOf = (list, key) => list.reduce((sum, e) => sum + e[key], 0);

function fillTables() {
  document.title = plan.source.split('/').pop() + ': memory plan';
  $('title').textContent = `${plan.source.split('/').pop()}: the memory of one training step`;
  const several = plan.workers.length > 1;
  const tooSmall = plan.budget && plan.memory > plan.budget;
  $('subtitle').textContent = `${plan.budget ? 'budget ' + bytesText(plan.budget) + (several ? ' a worker' : '') : 'no budget'}${tooSmall ? ', which is too small: the smallest plan is shown' : ''}, ${plan.count} micro-batch${plan.count > 1 ? 'es' : ''} of ` +
    `${plan.microbatch} example${plan.microbatch > 1 ? 's' : ''}, plan \u201c${plan.remat}\u201d`;
  const loopRuns = plan.loop[1] - plan.loop[0];
  const figure = (name, value, more) => element('div', {}, element('dt', {}, name), element('dd', {}, value, element('small', {}, more)));
  $('figures').append(
    figure(several ? `Memory of worker ${shownWorker}` : 'Memory of the process', bytesText(plan.memory), `arena ${bytesText(plan.arena)} + ${bytesText(plan.allowance)} allowance`),
    figure('Proven lower bound', bytesText(plan.budget_bound), plan.smallest_budget ? `smallest budget that compiles ${bytesTextUp(plan.smallest_budget)}` : plan.workers.length ? 'of any budget of a worker' : 'of any budget'),
    figure('Predicted step', secondsText(whole.seconds), plan.schedule ? `worker ${shownWorker} works ${secondsText(plan.workers[shownWorker].busy)} of it${plan.costs ? '; ' + plan.costs : ''}`
      : `no plan below ${secondsText(plan.seconds_bound)}${plan.costs ? '; ' + plan.costs : ''}`),
    figure('Computed again', percentText(plan.recompute_seconds / Math.max(plan.seconds, 1e-30)), `${plan.recomputed_runs} of ${loopRuns} kernel runs in the loop`));

  $('moments-note').textContent = `One step is ${runCount} kernel runs. The loop over micro-batches stands once and runs ${plan.count} ` +
    `time${plan.count > 1 ? 's' : ''}. Move with the slider, the arrow keys (shift: ten runs), Home and End, P for the peak, space to play.`;
  $('arena-note').textContent = `${bytesText(plan.arena)}, allocated once. Each rectangle is a tensor: its bytes upwards, the runs it is alive in to the right. ` +
    `The most bytes alive at one moment are ${bytesText(plan.peak_live)}; packing loses ${percentText(plan.arena / Math.max(1, plan.peak_live) - 1)}.`;
  $('curve-note').textContent = 'Every plan on the line is the fastest known for its memory. Named strategies stand at the micro-batch that is fastest within the budget, ' +
    'or, if none fits, at their smallest; their bytes are those alive at the peak.';
  fillTable('strategies', [['strategy'], ['micro-batch'], ['memory', 1], ['predicted step', 1], ['beside this plan', 1], ['']],
    [{this: true, cells: ['this plan: ' + plan.remat, `${plan.count} \u00d7 ${plan.microbatch}`, bytesText(plan.memory), secondsText(plan.seconds), '', '']},
     ...curve.chosen.map(p => ({cells: [p.name, `${plan.batch / p.microbatch} \u00d7 ${p.microbatch}`, bytesText(p.bytes), secondsText(p.seconds),
       '\u00d7 ' + (p.seconds / plan.seconds).toFixed(3), p.fits ? '' : 'does not fit the budget']}))]);

  const kept = grouped(plan.kept).sort((a, b) => b.bytes - a.bytes), again = grouped(plan.recomputed).sort((a, b) => b.seconds - a.seconds);
  $('kept-note').textContent = `${plan.kept.length} values of the forward sweep wait for the backward sweep. The price is what running their kernels once more would add to a step.`;
  fillTable('kept', [['value'], ['line'], ['how many', 1], ['bytes', 1], ['price of not keeping', 1]],
    kept.map(r => ({cells: [nameCell(r.name), sourceCell(r.line, r.library, r.name), r.count, bytesText(r.bytes), secondsText(r.seconds)]})),
    ['all', '', plan.kept.length, bytesText(sumOf(kept, 'bytes')), secondsText(sumOf(kept, 'seconds'))]);
  const away = grouped(plan.host ? plan.host.values : []).sort((a, b) => b.bytes - a.bytes);
  $('host-section').hidden = !away.length;
  if (away.length) {
    $('host-note').textContent = 'Values of the forward sweep that are copied to pinned memory of the host, and back before the backward sweep reads them. ' +
      `All copies of a step take ${secondsText(plan.host.in_seconds)} in and ${secondsText(plan.host.out_seconds)} out; no work hides ${secondsText(plan.host.waited_seconds)} of that.`;
    fillTable('host', [['value'], ['line'], ['how many', 1], ['bytes', 1], ['copies a step', 1]],
      away.map(r => ({cells: [nameCell(r.name), sourceCell(r.line, r.library, r.name), r.count, bytesText(r.bytes), secondsText(r.seconds)]})),
      ['all', '', plan.host.values.length, bytesText(sumOf(away, 'bytes')), secondsText(sumOf(away, 'seconds'))]);
  }
  $('again-note').textContent = plan.recomputed.length ? 'Kernels of the forward sweep that run again, in every micro-batch.' : 'Nothing is computed again under this plan.';
  if (plan.recomputed.length)
    fillTable('again', [['kernel'], ['line'], ['times a micro-batch', 1], ['bytes not kept', 1], ['time a step', 1], ['of the step', 1]],
      again.map(r => ({cells: [nameCell(r.name), sourceCell(r.line, r.library, r.name), r.times, bytesText(r.bytes), secondsText(r.seconds), percentText(r.seconds / plan.seconds)]})),
      ['all', '', sumOf(again, 'times'), bytesText(sumOf(again, 'bytes')), secondsText(sumOf(again, 'seconds')), percentText(sumOf(again, 'seconds') / plan.seconds)]);
  $('rows-section').hidden = !plan.row_blocks.length;
  if (plan.row_blocks.length)
    fillTable('rows', [['around'], ['line'], ['kernels', 1], ['blocks a micro-batch', 1], ['rows a block', 1], ['bytes', 1], ['instead of', 1], ['time a step', 1]],
      plan.row_blocks.map(r => ({cells: [r.name, sourceCell(r.line), r.kernels, r.blocks, r.examples + ' \u00d7 ' + r.positions, bytesText(r.bytes), bytesText(r.instead),
        (r.seconds < 0 ? '\u2212' : '+') + secondsText(Math.abs(r.seconds))]})));
  fillTable('peak', [['tensor'], ['line'], ['bytes', 1], ['']],
    plan.peak.map(p => ({cells: [nameCell(p.name), sourceCell(p.line), bytesText(p.bytes), p.recomputed ? 'computed again' : '']})));
  $('notes').textContent = `The memory of the process is the arena and an allowance of ${bytesText(plan.allowance)} for code, stacks and the runtime. ` +
    'Times are predicted from a model of the machine; bytes are exact.';
}
