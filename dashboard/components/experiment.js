// Draws an experiment: COMPUTE has its function; what is to be drawn of its values is declared in Python.

const screens = new WeakMap()
const REPORT_AFTER = 400 // ms after the hand has let go
const FRAME_MS = 60 // of a film

export default function ({ parentElement, data, setTriggerValue }) {
  const root = parentElement.querySelector(".lab")
  if (data.small) return preview(root, data)
  let screen = screens.get(root)
  if (!screen || screen.data.key !== data.key) {
    screen?.end()
    screen = new Screen(root, data)
    screens.set(root, screen)
  }
  screen.report = values => setTriggerValue("values", values)
  screen.told(data.start)
  return () => screen.pause()
}

// The first picture at the source's numbers, without words.
function preview(root, data) {
  const found = COMPUTE[data.key](...data.sliders.map(slider => data.start[slider.key]))
  const frame = new Frame({ data }, data.pictures[0], true)
  root.replaceChildren(frame.box)
  const resized = new ResizeObserver(() => frame.draw(found))
  resized.observe(frame.svg)
  return () => resized.disconnect()
}

class Screen {
  constructor(root, data) {
    this.root = root
    this.data = data
    this.values = { ...data.start }
    this.heard = JSON.stringify(data.start)
    this.sent = [] // and not yet heard of again
    this.guessed = data.sliders.some(slider => data.start[slider.key] !== slider.paper) // a link to what somebody saw
    this.hover = null
    root.replaceChildren(this.question(), this.main(), this.side(), this.numbers())
    this.resized = new ResizeObserver(() => this.draw())
    this.resized.observe(this.frames[0].svg)
    this.back = () => this.follow()
    window.addEventListener("popstate", this.back)
    this.draw()
  }

  // The sentence and the numbers say the answer: they come when somebody has guessed, or moved something.
  open() {
    if (this.guessed) return
    this.guessed = true
    this.draw()
  }

  // Back and forward: the values are the address's, also before the answer to the last ones, which then never comes.
  follow() {
    if (!this.root.isConnected) return window.removeEventListener("popstate", this.back)
    const address = new URLSearchParams(location.search) // as views/laboratory.py writes it
    if (address.get("experiment") !== this.data.key) return
    const wanted = Object.fromEntries((address.get("at") ?? "").split(",").map(part => part.split(":")))
    this.sent = []
    this.move(Object.fromEntries(this.data.sliders.map(({ key, stops, paper }) => {
      const value = parseFloat(wanted[key])
      return [key, Number.isFinite(value) ? stops[nearest(stops, value)] : paper]
    })))
    this.heard = JSON.stringify(this.values)
  }

  // An address that somebody followed, or went back to, has other values; what was sent from here is no news.
  told(start) {
    const text = JSON.stringify(start)
    if (text === this.heard) return
    this.heard = text
    const place = this.sent.indexOf(text)
    this.sent = place < 0 ? [] : this.sent.slice(place + 1)
    if (place < 0) this.move(start)
  }

  end() {
    window.removeEventListener("popstate", this.back)
    this.resized.disconnect()
    this.pause()
  }

  question() {
    const { words, answers, right, because } = this.data.question
    const said = made("p", { className: "because", hidden: true })
    said.setAttribute("aria-live", "polite")
    const buttons = answers.map((answer, place) =>
      made("button", {
        type: "button",
        textContent: answer,
        onclick: event => {
          for (const button of buttons) button.setAttribute("aria-pressed", button === event.target)
          said.hidden = false
          this.open()
          said.textContent = `${place === right ? "Yes." : `No: ${answers[right]}.`} ${because}`
        },
      }))
    return made("div", { className: "ask" }, made("p", {}, made("b", { textContent: "Guess before you move anything. " }), words),
      made("div", { className: "buttons" }, ...buttons), said)
  }

  side() {
    this.hands = this.data.sliders.map(slider => this.slider(slider))
    const reset = this.button("Reset to the source's numbers", () => this.data.sliders.map(s => [s.key, s.paper]))
    const tries = Object.entries(this.data.tries).map(([words, values]) =>
      this.button(words, () => [...this.data.sliders.map(s => [s.key, s.paper]), ...Object.entries(values)]))
    const open = this.hands.filter((_, place) => !this.data.sliders[place].folded).map(hand => hand.box)
    const folded = this.hands.filter((_, place) => this.data.sliders[place].folded).map(hand => hand.box)
    const fold = folded.length ? [made("details", {}, made("summary", { textContent: "More sliders" }), ...folded)] : []
    return made("div", { className: "side" }, ...open, ...fold, made("div", { className: "buttons" }, reset, ...tries))
  }

  numbers() {
    this.cells = this.data.numbers.map(() => made("td"))
    const rows = this.data.numbers.map((number, place) =>
      made("tr", {}, made("td", {}, ...(number.colour ? [this.swatch(number.colour)] : []), number.words), this.cells[place]))
    return made("table", { className: "numbers" }, made("tbody", {}, ...rows))
  }

  main() {
    this.says = made("p", { className: "says" })
    this.said = made("p", { style: "position:absolute;left:-9999px" })
    this.said.setAttribute("aria-live", "polite")
    this.frames = this.data.pictures.map(picture => new Frame(this, picture))
    return made("div", { className: "main" }, this.says, this.said,
      made("div", { className: "pictures" }, ...this.frames.map(frame => frame.box)))
  }

  slider(slider) {
    const id = `lab-${this.data.key}-${slider.key}`
    const label = made("label", { htmlFor: id }, made("b", { textContent: slider.symbol }), ` ${slider.words}`)
    if (slider.options.length) {
      const input = made("select", { id }, ...slider.options.map((words, value) => made("option", { value, textContent: words })))
      input.onchange = () => { this.move({ [slider.key]: Number(input.value) }); this.reportSoon() }
      const box = made("div", { className: "slider" }, label, made("span", { className: "hand" }, input))
      return { box, show: value => { input.value = value } }
    }
    const input = made("input", { id, type: "range", min: 0, max: slider.stops.length - 1, step: 1 })
    const output = made("output")
    output.setAttribute("for", id)
    input.oninput = () => { this.pause(); this.move({ [slider.key]: slider.stops[input.value] }) }
    input.onchange = () => this.reportSoon()
    const hand = made("span", { className: "hand" }, input)
    if (slider.plays) {
      const play = made("button", { type: "button", textContent: "▶", ariaLabel: `Play ${slider.words}` })
      play.onclick = () => this.play(slider, play)
      hand.append(play)
    }
    return {
      box: made("div", { className: "slider" }, label, output, hand),
      show: value => {
        input.value = nearest(slider.stops, value)
        output.textContent = slider.whole ? show(value, 7) : show(value)
        input.setAttribute("aria-valuetext", output.textContent)
      },
    }
  }

  play(slider, button) {
    const running = this.playing
    this.pause()
    if (running === button) return
    this.playing = button
    button.textContent = "❚❚"
    let place = nearest(slider.stops, this.values[slider.key])
    if (place >= slider.stops.length - 1) place = -1
    this.film = setInterval(() => {
      place += 1
      this.move({ [slider.key]: slider.stops[place] })
      if (place < slider.stops.length - 1) return
      this.pause()
      this.reportSoon()
    }, FRAME_MS)
  }

  pause() {
    clearInterval(this.film)
    if (this.playing) this.playing.textContent = "▶"
    this.playing = null
  }

  button(words, values) {
    const onclick = () => {
      this.pause()
      this.move(Object.fromEntries(values()))
      this.reportSoon()
    }
    return made("button", { type: "button", textContent: words, onclick })
  }

  move(values) {
    Object.assign(this.values, values)
    this.guessed = true
    clearTimeout(this.timer)
    this.draw()
  }

  // When the hand has let go, so that the address can be passed on.
  reportSoon() {
    clearTimeout(this.timer)
    this.timer = setTimeout(() => {
      if (!this.root.isConnected) return
      this.said.textContent = this.says.textContent
      this.sent.push(JSON.stringify(this.values))
      this.report({ ...this.values })
    }, REPORT_AFTER)
  }

  // At most once a frame of the screen.
  draw() {
    this.due ??= requestAnimationFrame(() => {
      this.due = undefined
      const began = performance.now()
      const found = COMPUTE[this.data.key](...this.data.sliders.map(slider => this.values[slider.key]))
      this.data.sliders.forEach((slider, place) => this.hands[place].show(this.values[slider.key]))
      this.data.numbers.forEach(({ key, percent }, place) => {
        this.cells[place].textContent = percent ? `${show(100 * found[key])}%` : show(found[key])
      })
      this.says.textContent = this.guessed ? found.says : "Guess above, or move a slider: then this line says what is so."
      this.root.classList.toggle("guessing", !this.guessed)
      for (const frame of this.frames) frame.draw(found)
      this.root.dataset.draws = Number(this.root.dataset.draws ?? 0) + 1
      this.root.dataset.took = performance.now() - began
      this.root.found = found
      this.root.values = this.values
    })
  }

  swatch(colour) {
    return made("i", { style: `background:${this.data.colours[colour]}` })
  }
}

class Frame {
  constructor(screen, picture, small = false) {
    this.screen = screen
    this.picture = picture
    this.small = small
    this.svg = document.createElementNS("http://www.w3.org/2000/svg", "svg")
    this.svg.setAttribute("role", "img")
    this.svg.setAttribute("aria-label", `${picture.title}: ${picture.y.title} by ${picture.x.title}`)
    this.tip = made("div", { className: "hover", hidden: true })
    if (small) {
      this.box = made("figure", { className: "picture small" }, this.svg)
      return
    }
    const entries = picture.marks.filter(mark => mark.name && mark.kind !== "map").map(mark => {
      const colour = screen.data.colours[mark.colour]
      const swatch = made("i", { className: mark.dashed ? "dashed" : mark.kind === "dots" ? "dots" : "", style: `background:${colour};border-color:${colour};${(mark.kind === "band" || mark.kind === "area") && !mark.strong ? "opacity:.35" : ""}` })
      return made("span", {}, swatch, mark.name)
    })
    this.box = made("figure", { className: "picture" }, made("figcaption", { textContent: picture.title }),
      made("div", { className: "legend" }, ...entries), this.svg, this.tip)
    this.svg.onpointermove = event => this.onMove(event)
    this.svg.onpointerleave = () => { this.at = null; this.readout() }
    this.svg.onpointerdown = event => this.onGrab(event)
    this.svg.onpointerup = this.svg.onpointercancel = () => {
      if (this.held) screen.reportSoon()
      this.held = null
    }
  }

  draw(found) {
    const { picture } = this
    const width = Math.max(this.svg.clientWidth, 240)
    const simplex = picture.corners.length > 0
    const height = this.small ? 100 : simplex ? Math.min(width * 0.8, 360) : 290
    const room = this.small ? { left: 6, right: 6, top: 6, bottom: 6 } : simplex ? { left: 60, right: 60, top: 26, bottom: 34 } : { left: 62, right: 12, top: 8, bottom: 44 }
    this.room = room
    this.size = { width, height }
    this.found = found
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`)
    this.svg.style.height = `${height}px`
    const across = width - room.left - room.right
    const up = height - room.top - room.bottom
    if (simplex) {
      const scale = Math.min(across, up / Math.sqrt(0.75))
      const left = (width - scale) / 2
      this.x = linear(0, 1, left, left + scale)
      this.y = linear(0, Math.sqrt(0.75), room.top + scale * Math.sqrt(0.75), room.top)
    } else {
      this.x = this.scale(picture.x, "x", room.left, width - room.right)
      this.y = this.scale(picture.y, "y", height - room.bottom, room.top)
    }
    const clip = `clip-${Math.round(Math.random() * 1e9)}`
    const marks = picture.marks.map((mark, place) => this.mark(mark, place))
    const frame = `<rect class="frame" x="${room.left}" y="${room.top}" width="${across}" height="${up}"/>`
    const around = this.small && !simplex ? "" : simplex ? this.triangle() : this.axes(across, up)
    const inside = simplex ? "" : ` clip-path="url(#${clip})"`
    this.svg.innerHTML = `<clipPath id="${clip}"><rect x="${room.left}" y="${room.top}" width="${across}" height="${up}"/></clipPath>`
      + around + `<g${inside}>${marks.join("")}</g>` + (simplex ? "" : frame) + '<g class="pointer"></g>'
    this.readout()
  }

  scale(axis, side, from, to) {
    const given = end => (typeof end === "string" ? this.found[end] : end)
    let low = given(axis.low), high = given(axis.high)
    if (low === null || high === null) {
      const values = this.picture.marks.flatMap(mark => [mark[side], side === "y" ? mark.other : ""].flatMap(key => this.found[key] ?? []))
        .filter(value => Number.isFinite(value) && (!axis.log || value > 0))
      const found = [Math.min(...values), Math.max(...values)]
      const pad = axis.log ? 0 : (found[1] - found[0]) * 0.05
      low ??= found[0] - pad
      high ??= found[1] + pad
    }
    if (!(high > low)) high = axis.log ? low * 10 : low + 1
    return axis.log ? logarithmic(low, high, from, to) : linear(low, high, from, to)
  }

  axes(across, up) {
    const { left, top } = this.room
    const parts = []
    const few = Math.max(3, Math.floor(across / 90))
    for (const value of this.x.ticks(few)) {
      const x = this.x(value)
      parts.push(`<line class="grid" x1="${x}" x2="${x}" y1="${top}" y2="${top + up}"/>`
        + `<text class="tick" x="${x}" y="${top + up + 16}" text-anchor="middle">${show(value)}</text>`)
    }
    for (const value of this.y.ticks(6)) {
      const y = this.y(value)
      parts.push(`<line class="grid" x1="${left}" x2="${left + across}" y1="${y}" y2="${y}"/>`
        + `<text class="tick" x="${left - 6}" y="${y + 4}" text-anchor="end">${show(value)}</text>`)
    }
    parts.push(`<text x="${left + across / 2}" y="${top + up + 36}" text-anchor="middle">${escaped(this.picture.x.title)}</text>`,
      `<text transform="translate(13 ${top + up / 2}) rotate(-90)" text-anchor="middle">${escaped(this.picture.y.title)}</text>`)
    return parts.join("")
  }

  triangle() {
    const corners = [[0, 0], [1, 0], [0.5, Math.sqrt(0.75)]].map(([x, y]) => [this.x(x), this.y(y)])
    const [one, two, three] = this.picture.corners.map(escaped)
    return `<polygon class="frame" points="${corners.map(at => at.join(",")).join(" ")}"/>`
      + `<text x="${corners[0][0]}" y="${corners[0][1] + 20}" text-anchor="middle">${one}</text>`
      + `<text x="${corners[1][0]}" y="${corners[1][1] + 20}" text-anchor="middle">${two}</text>`
      + `<text x="${corners[2][0]}" y="${corners[2][1] - 10}" text-anchor="middle">${three}</text>`
  }

  points(xs, ys) {
    return xs.map((x, place) => [this.x(x), this.y(ys[place])]).filter(([x, y]) => Number.isFinite(x) && Number.isFinite(y))
      .map(([x, y]) => [x.toFixed(1), Math.min(Math.max(y, -1e4), 1e4).toFixed(1)])
  }

  mark(mark, order) {
    const colour = this.screen.data.colours[mark.colour]
    const xs = this.found[mark.x] ?? [], ys = this.found[mark.y] ?? []
    const { left, top } = this.room
    const { width, height } = this.size
    switch (mark.kind) {
      case "line": {
        const path = this.points(xs, ys)
        const dash = mark.dashed ? ' stroke-dasharray="6 4"' : ""
        return path.length ? `<polyline points="${path.map(at => at.join(",")).join(" ")}" fill="none" stroke="${colour}" stroke-width="2.2" stroke-linejoin="round"${dash}/>` : ""
      }
      case "arrows": {
        const ends = this.points(xs, ys).map(at => at.map(Number))
        return _range(0, ends.length - 1, 2).map(place => {
          const [[fromX, fromY], [toX, toY]] = ends.slice(place, place + 2)
          const turn = Math.atan2(toY - fromY, toX - fromX)
          const head = [2.6, -2.6].map(by => `${(toX + 5 * Math.cos(turn + by)).toFixed(1)},${(toY + 5 * Math.sin(turn + by)).toFixed(1)}`)
          return `<polyline points="${fromX},${fromY} ${toX},${toY} ${head[0]} ${toX},${toY} ${head[1]}" fill="none" stroke="${colour}" stroke-width="1.3"/>`
        }).join("")
      }
      case "band": {
        const edge = [...this.points(xs, ys), ...this.points(xs, this.found[mark.other]).reverse()]
        return edge.length ? `<polygon points="${edge.map(at => at.join(",")).join(" ")}" fill="${colour}" fill-opacity=".22"/>` : ""
      }
      case "spans": {
        const ends = this.points(xs, this.found[mark.other])
        return this.points(xs, ys).map(([x, y], place) => `<line x1="${x}" x2="${x}" y1="${y}" y2="${ends[place]?.[1]}" stroke="${colour}" stroke-width="2.5"/>`).join("")
      }
      case "area": {
        const edge = this.points(xs, ys)
        return edge.length ? `<polygon points="${edge.map(at => at.join(",")).join(" ")}" fill="${colour}" fill-opacity="${mark.strong ? 0.7 : 0.22}" stroke="${colour}"${mark.strong ? ' stroke-width="3"' : ""}/>` : ""
      }
      case "dots": {
        const words = mark.labels ? this.found[mark.labels] ?? [] : []
        const handle = mark.moves.some(Boolean)
        return this.points(xs, ys).map(([x, y], place) =>
          `<circle cx="${x}" cy="${y}" r="${(handle ? 9 : 4) / (this.small ? 2 : 1)}" fill="${colour}"${handle ? ` class="handle" data-mark="${order}"` : ""}/>`
          + (words[place] ? `<text x="${Number(x) + 8}" y="${Number(y) - 7}">${escaped(words[place])}</text>` : "")).join("")
      }
      case "bars": {
        const base = Math.min(this.y(0) || height - this.room.bottom, height - this.room.bottom)
        const wide = Math.max(2, Math.min(40, 0.7 * (width - left) / Math.max(xs.length, 1)))
        return xs.map((x, place) => {
          const y = this.y(ys[place])
          return Number.isFinite(y) ? `<rect x="${this.x(x) - wide / 2}" y="${Math.min(y, base)}" width="${wide}" height="${Math.abs(base - y)}" fill="${colour}" fill-opacity=".8"/>` : ""
        }).join("")
      }
      case "rule": {
        const upright = mark.x !== ""
        const at = upright ? this.x(this.found[mark.x]) : this.y(this.found[mark.y])
        if (!Number.isFinite(at)) return ""
        const ends = upright ? `x1="${at}" x2="${at}" y1="${top}" y2="${height - this.room.bottom}"` : `x1="${left}" x2="${width - this.room.right}" y1="${at}" y2="${at}"`
        return `<line ${ends} stroke="${colour}" stroke-width="1.5" stroke-dasharray="3 3"/>`
      }
      case "map": return this.map(mark)
    }
    return ""
  }

  map(mark) {
    const cells = this.found[mark.y], columns = this.found[mark.other]
    const rows = cells.length / columns
    const { left, right, top, bottom } = this.room
    const wide = (this.size.width - left - right) / columns, high = (this.size.height - top - bottom) / rows
    const finite = cells.filter(Number.isFinite)
    const low = Math.min(...finite), largest = Math.max(...finite)
    const centre = mark.centre
    const span = centre === null ? largest - low : Math.max(largest - centre, centre - low)
    return cells.map((value, place) => {
      const column = place % columns
      if (!Number.isFinite(value) || (column > 0 && cells[place - 1] === value)) return ""
      let count = 1 // neighbours of the same value are one rectangle
      while (column + count < columns && cells[place + count] === value) count += 1
      const strength = span ? (centre === null ? (value - low) / span : Math.abs(value - centre) / span) : 0
      const colour = centre !== null && value < centre ? this.screen.data.colours.vermilion : this.screen.data.colours.blue
      const x = left + column * wide, y = this.size.height - bottom - (Math.floor(place / columns) + 1) * high
      return `<rect x="${x.toFixed(1)}" y="${y.toFixed(1)}" width="${(count * wide + 0.1).toFixed(1)}" height="${(high + 0.1).toFixed(1)}" shape-rendering="crispEdges" fill="${colour}" fill-opacity="${(0.9 * strength).toFixed(3)}"/>`
    }).join("")
  }

  place(event) {
    const box = this.svg.getBoundingClientRect()
    return [(event.clientX - box.left) * this.size.width / box.width, (event.clientY - box.top) * this.size.height / box.height]
  }

  onGrab(event) {
    if (!event.target.classList.contains("handle")) return
    this.held = this.picture.marks[event.target.dataset.mark]
    this.svg.setPointerCapture(event.pointerId)
  }

  onMove(event) {
    const [x, y] = this.place(event)
    if (this.held) {
      const values = {}
      let at = [this.x.back(x), this.y.back(y)]
      if (this.picture.corners.length) at = shares(...at)
      this.held.moves.forEach((key, side) => {
        const slider = this.screen.data.sliders.find(slider => slider.key === key)
        if (slider) values[key] = slider.stops[nearest(slider.stops, at[side])]
      })
      this.screen.move(values)
      return
    }
    this.at = x
    this.readout()
  }

  // The values of all lines at the pointer.
  readout() {
    const pointer = this.svg.querySelector(".pointer")
    if (!pointer) return
    const lines = this.picture.corners.length ? [] : this.picture.marks.filter(mark => mark.kind === "line" && mark.name && this.found[mark.x]?.length)
    this.tip.hidden = this.at == null || !lines.length
    pointer.innerHTML = ""
    if (this.tip.hidden) return
    const wanted = this.x.back(this.at)
    const rows = lines.map(mark => {
      const place = nearest(this.found[mark.x], wanted)
      return { mark, x: this.found[mark.x][place], y: this.found[mark.y][place] }
    })
    const x = this.x(rows[0].x)
    pointer.innerHTML = `<line x1="${x}" x2="${x}" y1="${this.room.top}" y2="${this.size.height - this.room.bottom}" stroke="currentColor" stroke-opacity=".5"/>`
    this.tip.replaceChildren(made("div", { textContent: `${this.picture.x.title.split(",").at(-1).trim()} = ${show(rows[0].x)}` }),
      ...rows.map(({ mark, y }) => made("div", {}, this.screen.swatch(mark.colour), `${mark.name}: ${show(y)}`)))
    const ratio = this.svg.clientWidth / this.size.width
    const right = x > this.size.width / 2
    this.tip.style.left = right ? "" : `${x * ratio + 10}px`
    this.tip.style.right = right ? `${(this.size.width - x) * ratio + 10}px` : ""
    this.tip.style.top = `${this.svg.offsetTop + this.room.top + 4}px`
  }
}

function linear(low, high, from, to) {
  const scale = value => from + (value - low) / (high - low) * (to - from)
  scale.back = place => low + (place - from) / (to - from) * (high - low)
  scale.ticks = few => {
    const rough = (high - low) / few
    const ten = 10 ** Math.floor(Math.log10(rough))
    const step = [1, 2, 5, 10].find(times => times * ten >= rough) * ten
    return _range(Math.ceil(low / step - 1e-9), Math.floor(high / step + 1e-9) + 1).map(times => Number((times * step).toPrecision(12)))
  }
  return scale
}

function logarithmic(low, high, from, to) {
  const inner = linear(Math.log10(low), Math.log10(high), from, to)
  const scale = value => inner(Math.log10(value))
  scale.back = place => 10 ** inner.back(place)
  scale.ticks = few => {
    const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9)
    const step = Math.max(1, Math.ceil((last - first) / few))
    const tens = _range(first, last + 1, step).map(power => Number(`1e${power}`))
    if (last - first >= 2) return tens
    const finer = _range(first - 1, last + 1).flatMap(power => [1, 2, 5].map(times => Number(`${times}e${power}`)))
    return finer.filter(value => value >= low * 0.999 && value <= high * 1.001)
  }
  return scale
}

// Of the second and the third corner of the simplex, at the point or beside it.
function shares(x, y) {
  const third = y / Math.sqrt(0.75)
  const all = [1 - x - third / 2, x - third / 2, third].map(share => Math.max(share, 0))
  const sum = _sum(all)
  return [all[1] / sum, all[2] / sum]
}

function nearest(list, value) {
  let found = 0
  list.forEach((each, place) => { if (Math.abs(each - value) < Math.abs(list[found] - value)) found = place })
  return found
}

const escaped = text => String(text).replace(/[&<>"]/g, sign => `&#${sign.charCodeAt(0)};`)

function made(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties)
  element.append(...children)
  return element
}
