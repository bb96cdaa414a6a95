// Loaded before an unchanged server (node --import): whatever port it is told to
// listen on, it gets a free one of the loopback, which is said on standard output.
import net from "node:net";

const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (_port, ...rest) {
  this.once("listening", () => process.stdout.write(`PORT ${this.address().port}\n`));
  return listen.call(this, 0, "127.0.0.1", ...rest);
};
