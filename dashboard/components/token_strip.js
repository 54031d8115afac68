// The token reader. Text of a log reaches the page through textContent and setAttribute only, so it stays text.

const readers = new WeakMap()
const REPORT_AFTER = 400 // ms without another move, so that walking along the tokens does not flood the server

export default function (component) {
  const { parentElement, data, setStateValue } = component
  const root = parentElement.querySelector(".reader")
  let reader = readers.get(root)
  if (!reader) {
    reader = new Reader(root)
    readers.set(root, reader)
  }
  reader.report = place => setStateValue("token", place)
  reader.show(data)
}

class Reader {
  constructor(root) {
    this.root = root
    this.strip = root.querySelector(".strip")
    this.detail = root.querySelector(".detail")
    this.status = root.querySelector(".status")
    this.identity = null
    this.wantsFocus = false
    root.querySelector(".previous").onclick = () => this.toExtreme(-1)
    root.querySelector(".next").onclick = () => this.toExtreme(1)
    this.strip.onclick = event => this.onToken(event, place => this.choose(place))
    this.strip.addEventListener("focusin", event => this.onToken(event, place => this.choose(place)))
    this.strip.onmouseover = event => this.onToken(event, place => this.describe(place))
    this.strip.onmouseleave = () => this.describe(this.current)
    this.strip.onkeydown = event => this.onKey(event)
  }

  show(data) {
    const same = this.identity === data.identity
    this.data = data
    this.root.classList.remove("light", "dark")
    this.root.classList.add(isDark(this.root) ? "dark" : "light")
    if (same) return
    this.identity = data.identity
    this.rank = -1
    this.drawLegend()
    this.tokens = data.texts.map((text, place) => this.token(text, place))
    const between = place => (data.between[place] ?? []).map(([heading, text]) => message(heading, text))
    const line = (token, place) => [...between(place), token, ...(data.breaks[place] ? [br()] : [])]
    this.strip.replaceChildren(...this.tokens.flatMap(line), ...between(this.tokens.length))
    this.strip.setAttribute("aria-label", data.label)
    for (const button of this.root.querySelectorAll(".moves button")) button.disabled = !data.extremes.length
    const start = data.chosen ?? data.extremes.find(place => this.holds(place)) ?? data.first
    this.current = start
    this.mark(start)
    this.reveal(start)
    if (this.wantsFocus) this.at(start)?.focus({ preventScroll: true })
    this.wantsFocus = false
  }

  token(text, place) {
    const token = document.createElement("span")
    token.className = `token ${this.data.classes[place]} ${this.data.marks[place]}`
    token.textContent = text
    token.tabIndex = -1
    token.dataset.place = place + this.data.first
    token.setAttribute("role", "option")
    token.setAttribute("aria-selected", "false")
    token.setAttribute("aria-label", this.data.names[place])
    return token
  }

  drawLegend() {
    const entries = this.data.legend.map(([name, words]) => element("li", words, name))
    this.root.querySelector(".legend").replaceChildren(element("li", this.data.title, "title"), ...entries)
  }

  holds(place) {
    return place >= this.data.first && place < this.data.first + this.data.texts.length
  }

  at(place) {
    return this.tokens[place - this.data.first]
  }

  onToken(event, action) {
    const token = event.target.closest(".token")
    if (token) action(Number(token.dataset.place))
  }

  choose(place) {
    if (place === this.current && this.at(place)?.getAttribute("aria-selected") === "true" && this.reported === place) return
    this.mark(place)
    this.reported = place
    this.reportAfter(REPORT_AFTER, place)
  }

  // A report ends a script that is running. On the way to another page it would leave that page empty.
  reportAfter(wait, place, page = location.pathname) {
    clearTimeout(this.timer)
    this.timer = setTimeout(() => {
      if (!this.root.isConnected || location.pathname !== page) return
      if (isBusy()) this.reportAfter(REPORT_AFTER, place, page)
      else this.report(place)
    }, wait)
  }

  mark(place) {
    const before = this.at(this.current)
    if (before) {
      before.tabIndex = -1
      before.setAttribute("aria-selected", "false")
    }
    this.current = place
    const token = this.at(place)
    if (!token) return
    token.tabIndex = 0
    token.setAttribute("aria-selected", "true")
    this.rank = this.data.extremes.indexOf(place)
    this.describe(place)
    const { extremes, fields, values, first, total } = this.data
    const position = values[place - first]?.[fields.indexOf("position")] ?? place
    const rank = this.rank < 0 ? `${extremes.length} stand out` : `no. ${this.rank + 1} of ${extremes.length} that stand out`
    this.status.textContent = `position ${position} (counted from 0), ${total} tokens; ${rank}`
  }

  describe(place) {
    const values = this.data.values[place - this.data.first]
    if (!values) return
    const list = document.createElement("dl")
    values.forEach((value, field) => {
      if (value === "") return
      const pair = document.createElement("div")
      pair.classList.toggle("wide", String(value).length > 14)
      pair.append(element("dt", this.data.fields[field]), element("dd", value))
      list.append(pair)
    })
    this.detail.replaceChildren(element("div", this.data.texts[place - this.data.first], "name"), list)
  }

  // Inside the strip only: the page must not jump.
  reveal(place) {
    const token = this.at(place)
    if (!token) return
    const top = token.offsetTop
    const { scrollTop, clientHeight } = this.strip
    if (top < scrollTop || top + token.offsetHeight > scrollTop + clientHeight) this.strip.scrollTop = top - clientHeight / 2
  }

  go(place) {
    const token = this.at(place)
    if (!token) return
    token.focus({ preventScroll: true })
    this.reveal(place)
  }

  toExtreme(step) {
    const { extremes } = this.data
    if (!extremes.length) return
    const place = extremes[(this.rank < 0 && step < 0 ? 0 : this.rank + step + extremes.length) % extremes.length]
    if (this.holds(place)) return this.go(place)
    this.wantsFocus = true // it is in another part of the response, which the server sends
    this.reportAfter(0, place)
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return
    const end = this.data.first + this.data.texts.length - 1
    const moves = {
      n: () => this.toExtreme(1),
      p: () => this.toExtreme(-1),
      ArrowRight: () => this.go(Math.min(this.current + 1, end)),
      ArrowLeft: () => this.go(Math.max(this.current - 1, this.data.first)),
      ArrowDown: () => this.go(this.nextLine(1)),
      ArrowUp: () => this.go(this.nextLine(-1)),
      Home: () => this.go(this.data.first),
      End: () => this.go(end),
    }
    const move = moves[event.key]
    if (!move) return
    event.preventDefault()
    event.stopPropagation()
    move()
  }

  // The token above or below: the first of the neighbouring line that is not left of this one, or its last.
  nextLine(step) {
    const here = this.at(this.current)
    let found = this.current
    let line = null
    for (let place = this.current + step; this.holds(place); place += step) {
      const token = this.at(place)
      if (token.offsetTop === here.offsetTop) continue
      line ??= token.offsetTop
      if (token.offsetTop !== line) break
      if (found === this.current || nearer(token, this.at(found), here)) found = place
    }
    return found
  }
}

const isBusy = () => {
  const state = document.querySelector("[data-testid=stApp]")?.getAttribute("data-test-script-state")
  return Boolean(state) && state !== "notRunning"
}

const nearer = (a, b, to) => Math.abs(a.offsetLeft - to.offsetLeft) < Math.abs(b.offsetLeft - to.offsetLeft)

function message(heading, text) {
  const made = element("div", "", "message")
  made.setAttribute("role", "presentation")
  made.append(element("span", heading, "heading"))
  if (text) made.append(element("div", text, "content"))
  return made
}

const br = () => document.createElement("br")

function element(tag, text, name = "") {
  const made = document.createElement(tag)
  made.textContent = text
  made.className = name
  return made
}

function isDark(root) {
  const probe = document.createElement("span")
  probe.style.color = "var(--st-background-color)"
  root.append(probe)
  const [red, green, blue] = getComputedStyle(probe).color.match(/[\d.]+/g).map(Number)
  probe.remove()
  return red + green + blue < 3 * 128
}
