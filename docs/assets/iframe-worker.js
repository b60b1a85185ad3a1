/* Search from a file: browsers start no worker there, so its script runs in a hidden frame. */
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = null;
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.srcdoc = "<!doctype html>";
      this.ready = new Promise((resolve, reject) => {
        this.frame.onload = () => {
          const inside = this.frame.contentWindow;
          inside.postMessage = (data) => this.receive(data);
          inside.importScripts = () => Promise.resolve();
          const script = inside.document.createElement("script");
          script.src = new URL(url, location.href).href;
          script.onload = resolve;
          script.onerror = reject;
          inside.document.head.append(script);
        };
      });
      document.documentElement.append(this.frame);
    }
    receive(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      if (this.onmessage) this.onmessage(event);
    }
    postMessage(data) {
      this.ready.then(() => {
        const inside = this.frame.contentWindow;
        inside.dispatchEvent(new inside.MessageEvent("message", { data }));
      });
    }
    terminate() {
      this.frame.remove();
    }
  };
