// The arena: each tensor a rectangle, offset upwards, time to the right, on the timeline's scale.
const arena = (() => {
  const host = $('arena'), top = 8, bottom = 24, height = 380;
  const canvas = element('canvas', {role: 'img', id: 'arena-picture', 'aria-label': 'bytes of the arena over the step'});
  let width = 0, now = 0, marked = null;
  const y = offset => top + (height - top - bottom) * (1 - offset / plan.arena);

  function paint() {
    const ratio = window.devicePixelRatio || 1, c = canvas.getContext('2d');
    const colors = getComputedStyle(document.documentElement), color = name => colors.getPropertyValue('--' + name).trim();
    width = Math.max(320, host.clientWidth);
    canvas.width = width * ratio, canvas.height = height * ratio;
    canvas.style.width = width + 'px', canvas.style.height = height + 'px';
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, width, height);
    c.fillStyle = color('faint');
    c.fillRect(timeline.x(0), y(plan.arena), timeline.x(runCount) - timeline.x(0), y(0) - y(plan.arena));
    c.strokeStyle = color('page');
    c.lineWidth = .7;
    for (const p of pieces) {
      const x0 = timeline.x(p.lower), w = Math.max(.6, timeline.x(Math.min(p.upper, runCount)) - x0);
      const y0 = y(p.offset + p.bytes), h = Math.max(.4, y(p.offset) - y0);
      c.fillStyle = color(classOfInstance(p.instance));
      c.fillRect(x0, y0, w, h);
      if (w > 2.5 && h > 2.5) c.strokeRect(x0, y0, w, h);
    }
    if (marked) {
      c.strokeStyle = color('ink');
      c.lineWidth = 2;
      const x0 = timeline.x(marked.lower), y0 = y(marked.offset + marked.bytes);
      c.strokeRect(x0, y0, Math.max(2, timeline.x(Math.min(marked.upper, runCount)) - x0), Math.max(2, y(marked.offset) - y0));
    }
    c.fillStyle = color('quiet');
    c.font = '11.5px system-ui, sans-serif';
    c.textAlign = 'right';
    for (const v of ticks(0, plan.arena, 5, true)) c.fillText(tickText(v), timeline.left - 8, y(v) + 4);
    c.textAlign = 'left';
    c.fillText('offset in the arena upwards, kernel runs to the right', timeline.left, height - 7);
    c.strokeStyle = color('ink');
    c.lineWidth = 1.5;
    const at = (timeline.x(now) + timeline.x(now + 1)) / 2;
    c.beginPath();
    c.moveTo(at, top - 4);
    c.lineTo(at, y(0));
    c.stroke();
  }
  function find(event) {
    const box = canvas.getBoundingClientRect();
    const run = runAlong(Math.min(1, Math.max(0, (event.clientX - box.left - timeline.left) / (width - timeline.left - timeline.right))));
    const offset = (1 - (event.clientY - box.top - top) / (height - top - bottom)) * plan.arena;
    return pieces.find(p => p.lower <= run && run < p.upper && p.offset <= offset && offset < p.offset + p.bytes);
  }
  function describe(p) {
    return `${nameOfInstance(p.instance)} ${placeText(lineOfInstance(p.instance))}\n${bytesText(p.bytes)} at offset ${p.offset}` +
      `\nruns ${p.lower + 1} to ${Math.min(p.upper, runCount)}, ${classes[plan.instances.class[p.instance]][1]}`;
  }
  canvas.addEventListener('pointermove', event => {
    const p = find(event);
    if (p !== marked) {
      marked = p;
      paint();
    }
    tip(event, p ? describe(p) : '');
  });
  canvas.addEventListener('pointerleave', event => {
    marked = null;
    tip(event, '');
    paint();
  });
  host.append(canvas);
  return {
    draw: paint,
    move(run) {
      now = run;
      paint();
    },
  };
})();
