// Copies the address of this view, or that of a saved one. Browsers give no clipboard to a page without HTTPS.

const WAIT = 2000 // milliseconds that "Copied" stands

export default function ({ parentElement, data }) {
  const [button, words, said] = ["button", "b", "p"].map(tag => parentElement.querySelector(tag))
  const { run, view } = data
  words.textContent = data.words
  if (!data.words) button.setAttribute("aria-label", `Copy the link to ${view}`)
  button.title = view ? "Copy the link to this view" : "The link opens this view again"
  button.onclick = async () => {
    const address = new URL(location.href)
    if (view) {
      address.pathname = address.pathname.replace(/[^/]*$/, "")
      address.search = `?${new URLSearchParams({ view })}`
    } else if (run && !address.searchParams.has("run")) address.searchParams.set("run", run)
    const done = await copied(address.href)
    words.textContent = done ? "Copied" : data.words
    said.className = done ? "heard" : ""
    said.textContent = done ? "Link copied" : "The browser did not copy. Copy this:"
    if (!done) said.append(document.createElement("br"), address.href)
    setTimeout(() => (words.textContent = data.words), WAIT)
  }
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text)
    return true
  } catch {
    const field = document.createElement("textarea")
    field.value = text
    document.body.append(field)
    field.select()
    const done = document.execCommand("copy")
    field.remove()
    return done
  }
}
