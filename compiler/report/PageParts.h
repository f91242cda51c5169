// PageParts.h: the files of compiler/report/page as strings; the build makes the definitions.
#ifndef CINCH_COMPILER_REPORT_PAGEPARTS_H
#define CINCH_COMPILER_REPORT_PAGEPARTS_H

namespace cinch::report {

const char *pageFrame();  // frame.html
const char *pageStyle();  // style.css
const char *pageScript(); // the scripts, one after the other

} // namespace cinch::report
#endif
