// The worker of the search. Readers ask in sentences, so this passes on the words that matter, without their endings. The search
// takes each word as the beginning of a word, so that "a" would find "agent", and "keys" would not find "key".
const SMALL = new Set(
  `a about an and are as at be been by can could did do does for from get give got had has have how i if in is it its me my
  of on or our please should so that the their them there they this to us was we were what when where which who why will with
  would you your`.split(/\s+/),
);
const QUERY = 2; // the type of a message that asks

function beginning(word) {
  let stem = word.replace(/ies$/, "").replace(/(ss|sh|ch|x)es$/, "$1").replace(/([^s])s$/, "$1");
  const plain = stem.replace(/(ing|ed)$/, "");
  if (plain.length >= 4) stem = plain.replace(/([bdgklmnprt])\1$/, "$1");
  return stem;
}

function essential(question) {
  if (/["+~^*:]/.test(question)) return question; // it uses the search's own syntax
  const words = question.toLowerCase().match(/[\p{L}\p{N}_./-]+/gu) ?? [];
  const kept = words.filter((word) => !SMALL.has(word));
  // ^1 asks for the word itself.
  return (kept.length ? kept : words).map((word) => (word.length < 3 ? `${word}^1` : beginning(word))).join(" ");
}

// Browsers start no worker on a page that was opened as a file, so the worker's program runs in a frame there.
class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);

    // Writing the document keeps its window: Firefox replaces the one of an empty frame.
    const inner = frame.contentWindow;
    inner.document.open();
    inner.document.write("<body></body>");
    inner.document.close();
    inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    this.inner = inner;
    this.loaded = new Promise((resolve) => {
      const script = inner.document.createElement("script");
      script.onload = resolve;
      script.src = new URL(url, location.href);
      inner.document.body.append(script);
    });
  }

  postMessage(data) {
    this.loaded.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data })));
  }
}

const Base = location.protocol === "file:" ? FrameWorker : Worker;
window.Worker = class extends Base {
  postMessage(message) {
    super.postMessage(message.type === QUERY ? { ...message, data: essential(message.data) } : message);
  }
};
