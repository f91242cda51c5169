// extension.js: starts `cinch lsp` for programs.
const { LanguageClient } = require("vscode-languageclient/node");

let client;

exports.activate = () => {
  client = new LanguageClient("cinch", "Cinch", { command: "cinch", args: ["lsp"] }, { documentSelector: [{ language: "cinch" }] });
  return client.start();
};

exports.deactivate = () => client && client.stop();
