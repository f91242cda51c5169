// extension.js: starts `cinch lsp` for programs.
const { LanguageClient } = require("vscode-languageclient/node");

// The server knows programs by their files: a buffer without one waits until it is saved.
const programs = { language: "cinch", scheme: "file" };
let client;

exports.activate = () => {
  client = new LanguageClient("cinch", "Cinch", { command: "cinch", args: ["lsp"] }, { documentSelector: [programs] });
  return client.start();
};

exports.deactivate = () => client && client.stop();
