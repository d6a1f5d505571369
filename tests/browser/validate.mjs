// Check the HTML of the files named on standard input, one a line, and print what was found as JSON.
import { readFileSync } from "node:fs";
import { HtmlValidate } from "html-validate";

const checker = new HtmlValidate({ extends: ["html-validate:standard"], rules: {} });
const found = [];
for (const file of readFileSync(0, "utf8").split("\n").filter(Boolean)) {
  const report = await checker.validateFile(file);
  for (const result of report.results) {
    for (const m of result.messages) found.push({ file, rule: m.ruleId, line: m.line, message: m.message });
  }
}
console.log(JSON.stringify(found));
