// The search of the site runs in a worker. A page that is opened as a file may not start one, so a
// hidden frame takes its place there. Material asks `"IFrameWorker" in parent` to know of it.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      const inside = frame.contentWindow
      const load = (source) => new Promise((done) => {
        const script = frame.contentDocument.createElement("script")
        script.src = source
        script.onload = script.onerror = done
        frame.contentDocument.body.appendChild(script)
      })
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      inside.importScripts = async (...sources) => {
        for (const source of sources) await load(source)
      }
      this.inside = inside
      this.ready = load(new URL(url, location.href).href)
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })))
    }
  }
  window.Worker = window.IFrameWorker
}
