// Says in words of ours that the server does not answer, in place of Streamlit's dialog, which covers the page.

const PATIENCE_MS = 1500; // a connection that comes back at once is not worth a word
const STATE = "data-test-connection-state";
const OF_STREAMLIT = "[data-testid=stDialog]:not(:has([data-testid^=st])) button[aria-label=Close]";

export default function ({ data }) {
  const element = document.querySelector("#ratioscope-away") ?? begin();
  element.said = data.says;
}

function begin() {
  const element = document.createElement("div");
  element.id = "ratioscope-away";
  element.setAttribute("role", "alert");
  document.body.append(element);
  let waits;
  // Once it is closed it stays closed until the connection is there again.
  const close = () => document.querySelector(OF_STREAMLIT)?.click();
  const dialogs = new MutationObserver(close);
  const look = () => {
    const away = !document.querySelector(`[${STATE}=CONNECTED]`);
    document.body.classList.toggle("ratioscope-away", away);
    if (away) {
      close();
      dialogs.observe(document.body, { childList: true, subtree: true });
      waits ??= setTimeout(() => say(element), PATIENCE_MS);
    } else {
      dialogs.disconnect();
      clearTimeout(waits);
      waits = undefined;
      element.replaceChildren();
    }
  };
  new MutationObserver(look).observe(document.body, { attributeFilter: [STATE], subtree: true });
  look(); // a server that went away before this began changes nothing more
  return element;
}

function say(element) {
  element.style.colorScheme = getComputedStyle(document.querySelector("[data-testid=stApp]")).colorScheme;
  element.replaceChildren(
    ...["strong", "span", "code"].map((tag, place) => {
      const part = document.createElement(tag);
      part.textContent = element.said[place];
      return part;
    }),
  );
}
