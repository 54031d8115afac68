// The command palette. What is listed is written through textContent only, so text of a log stays text.

const palettes = new WeakMap()
const MOST = 8 // of a group, until more is typed
const NARROW = 768 // pixels, below which Streamlit's menu covers the page
const STEPS = /^(?:steps?\s*)?(\d{1,9})(?:\s*(?:-|–|to)\s*(\d{1,9}))?$/i

export default function ({ parentElement, data, setTriggerValue }) {
  const root = parentElement.querySelector(".go")
  let palette = palettes.get(root)
  if (!palette) palettes.set(root, (palette = new Palette(root, parentElement.querySelector(".keys"))))
  palette.ask = () => setTriggerValue("asked", true)
  palette.show(data)
  const call = (palette.call = {}) // Streamlit also ends a call that a newer one has overtaken
  return () => palette.call === call && palette.leave()
}

class Palette {
  constructor(dialog, keys) {
    Object.assign(this, { dialog, keys, entries: [], rest: [], run: "", last: -1, unlisted: 0 })
    this.input = dialog.querySelector("input")
    this.list = dialog.querySelector(".list")
    this.more = dialog.querySelector(".more")
    this.input.oninput = () => this.filter()
    this.input.onkeydown = event => this.onKey(event)
    this.list.onclick = event => this.go(this.at(event))
    this.list.onmousemove = event => this.at(event) && this.mark(this.entries.indexOf(this.at(event)))
    for (const each of [dialog, keys]) each.onclick = event => event.target === each && each.close() // beside it
    keys.querySelector("button").onclick = () => keys.close()
  }

  show(data) {
    this.data = data
    if (data.rest) {
      const { entries, ...others } = data.rest
      Object.assign(this, { rest: entries, ...others, waits: false })
    }
    if (!this.listening) {
      this.listening = new AbortController()
      const { signal } = this.listening
      document.addEventListener("keydown", event => this.onAnyKey(event), { signal, capture: true })
      document.addEventListener("ratioscope-palette", () => this.open(), { signal })
      addEventListener("popstate", () => this.dialog.close(), { signal }) // Back leads to a page, which it would cover
      this.dialog.dataset.listens = "" // the element is there before its program
    }
    if (this.dialog.open) this.filter(this.place) // the choice stays where it is
  }

  leave() {
    this.listening?.abort()
    this.listening = undefined
    delete this.dialog.dataset.listens
  }

  onAnyKey(event) {
    if (event.key?.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey) {
      event.preventDefault()
      event.stopPropagation()
      if (this.dialog.open) this.dialog.close()
      else this.open()
    } else if (event.key === "?" && !isWritten(event.composedPath()[0]) && !this.keys.open) {
      event.preventDefault()
      this.listKeys()
    }
  }

  open() {
    if (document.querySelector("[data-testid=stDialog]")) return // it holds the focus
    this.keys.close()
    this.input.value = ""
    this.waits = true
    // What was answered elsewhere is of another run, of other steps, or pins what was pinned there.
    if (this.asked !== location.href) Object.assign(this, { rest: [], run: "", last: -1, unlisted: 0 })
    this.asked = location.href
    this.dialog.showModal()
    this.filter()
    this.ask()
  }

  listKeys() {
    const parts = new Map()
    for (const [where, press, does] of this.data.keys) {
      if (!parts.has(where)) parts.set(where, element("dl"))
      const term = element("dt")
      term.append(element("kbd", press))
      parts.get(where).append(term, element("dd", does))
    }
    this.keys.querySelector(".all").replaceChildren(...[...parts].flatMap(([where, list]) => [element("h3", where), list]))
    this.keys.showModal()
  }

  filter(place = 0) {
    const typed = this.input.value.trim()
    const words = typed.toLowerCase().split(/\s+/).filter(Boolean)
    const all = [...this.steps(typed), ...this.data.pages, ...this.rest]
    const fits = all.filter(([group, text, beside, , , always]) => {
      const whole = `${group} ${text} ${beside}`.toLowerCase()
      return always || words.every(word => whole.includes(word))
    })
    const groups = new Map()
    for (const entry of fits) groups.set(entry[0], [...(groups.get(entry[0]) ?? []), entry])
    const most = groups.size > 1 ? MOST : 60
    const drawn = []
    this.entries = []
    let hidden = 0
    for (const [group, entries] of groups) {
      // What begins with what was typed comes first; else the order is that of the lists.
      const first = words.length ? entries.filter(([, text]) => text.toLowerCase().startsWith(words[0])) : []
      const ordered = [...first, ...entries.filter(entry => !first.includes(entry))]
      const shown = group === "Pages" ? ordered : ordered.slice(0, most)
      hidden += ordered.length - shown.length
      const part = element("div")
      part.setAttribute("role", "group")
      part.setAttribute("aria-label", group)
      const heading = element("div", group, "group")
      heading.setAttribute("aria-hidden", "true")
      part.append(heading, ...shown.map(entry => this.line(entry)))
      drawn.push(part)
    }
    this.list.replaceChildren(...drawn)
    const nothing = this.waits ? "Looking …" : `Nothing is called that.${this.run ? "" : " Steps and metrics are those of an open run."}`
    const others = hidden ? `${hidden.toLocaleString("en")} more: type on. ` : ""
    const older = this.unlisted ? `The ${this.unlisted.toLocaleString("en")} oldest runs are on the page Runs only. ` : ""
    this.more.textContent = older + (this.entries.length ? `${others}↑ ↓ to choose, Enter to go, ? for all keys` : nothing)
    this.mark(Math.min(place, Math.max(this.entries.length - 1, 0)))
  }

  steps(typed) {
    const found = STEPS.exec(typed)
    if (!found || !this.run) return []
    const [first, last] = [found[1], found[2] ?? found[1]].map(Number).sort((a, b) => a - b)
    const responses = (words, step) => ["Steps", words, "its responses", "tokens", { run: this.run, step, where: "this step" }, true]
    if (first > this.last) return [responses(`Step ${this.last}, the last one`, this.last)]
    const range = { run: this.run, from: first, to: Math.min(last, this.last) }
    const tokens = responses(`Step ${first}`, first)
    const named = first === range.to ? `Step ${first}` : `Steps ${first} to ${range.to}`
    return [...(first === last ? [tokens] : []), ["Steps", named, "on this page", null, range, true]]
  }

  line(entry) {
    const line = element("div", "", "entry")
    line.id = `entry-${this.entries.length}`
    line.setAttribute("role", "option")
    line.append(element("span", entry[1], "words"))
    if (entry[2]) line.append(element("span", entry[2], "beside"))
    this.entries.push(line)
    line.entry = entry
    return line
  }

  mark(place) {
    this.place = place
    this.entries.forEach((line, at) => line.setAttribute("aria-selected", String(at === place)))
    const chosen = this.entries[place]
    if (chosen) this.input.setAttribute("aria-activedescendant", chosen.id)
    else this.input.removeAttribute("aria-activedescendant")
    if (place === 0) this.list.scrollTop = 0
    else chosen?.scrollIntoView({ block: "nearest" })
  }

  at(event) {
    return event.target.closest(".entry")
  }

  onKey(event) {
    const n = this.entries.length
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 }
    if (event.key === "?" && !this.input.value) {
      this.dialog.close()
      this.listKeys()
    } else if (event.key === "Enter") this.go(this.entries[this.place])
    else if (event.key in moves && n) this.mark(wrapped(this.place + moves[event.key], n, Math.abs(moves[event.key]) === 1))
    else return
    event.preventDefault()
  }

  // What the Back button does: the app hears of the address and is not loaded again.
  go(line) {
    if (!line) return
    const [, , , page, query] = line.entry
    this.dialog.close()
    const now = new URLSearchParams(location.search)
    const wanted = new URLSearchParams(page === null ? now : undefined)
    for (const [key, value] of Object.entries(query ?? {})) {
      wanted.delete(key)
      for (const each of [value].flat()) wanted.append(key, each)
    }
    if (!query) for (const key of this.data.carried) for (const value of now.getAll(key)) wanted.append(key, value)
    const folder = location.pathname.replace(/[^/]*$/, "")
    const path = page === null ? location.pathname : folder + (page === this.data.first ? "" : page)
    history.pushState({}, "", `${path}${wanted.size ? `?${wanted}` : ""}`)
    dispatchEvent(new PopStateEvent("popstate"))
    const menu = document.querySelector("[data-testid=stSidebar][aria-expanded=true] [data-testid=stSidebarCollapseButton] button")
    if (innerWidth <= NARROW) menu?.click()
  }
}

// Single moves go round, pages end.
const wrapped = (place, n, round) => (round ? (place + n) % n : Math.min(Math.max(place, 0), n - 1))

const isWritten = target => target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName)

function element(tag, text = "", name = "") {
  const made = document.createElement(tag)
  made.textContent = text
  if (name) made.className = name
  return made
}
