// Diagnostics as SARIF 2.1.0, in the subset that GitHub's code scanning takes.
//
// Code scanning refuses a whole file for one result without a location. So each result here
// has a code and a place in a file; what has neither ("no --target given", a rule file that
// is missing) is a notification of the tool:
//
//   error or warning at a file            result
//   error or warning without a place      result at the first rule file of the checkout,
//                                         with the whole message
//   missing file, note without a place,   notification; an error makes the run
//   message without a code                unsuccessful
#pragma once

#include <string>

#include "lib/support/diag.h"

namespace ktx::tools {

struct SarifRun {
  bool finished = false;  // the check got as far as the rules
  int exit_status = 0;
};

std::string to_sarif(const DiagSink& sink, const SarifRun& run);

}  // namespace ktx::tools
