// The table of diagnostic codes, for --explain-code, -W flags, SARIF and docs/checks.md.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/support/diag.h"
#include "lib/support/result.h"

namespace ktx::rules {

struct CheckInfo {
  std::string_view code;  // "R001", without "KTX-"
  int row = 0;            // of the failure catalogue, 0: none
  bool lowerable = false;
  std::string_view severity;  // in words
  std::string_view title;
  std::string_view explanation;  // may be empty
  std::string_view mistake;      // may be empty
  std::string_view mend;
  std::string_view test;  // "": the golden cases of this code
};

std::span<const CheckInfo> all_checks();
// With or without "KTX-", in capitals or not; null when unknown.
const CheckInfo* find_check(std::string_view code);
std::string nearest_check(std::string_view code);  // "; did you mean 'KTX-R001'?", or ""

std::string explain_check(const CheckInfo& check);
std::string list_checks();      // a line each
std::string checks_markdown();  // docs/checks.md

// Reads one -W flag ("error", "error=KTX-R001", "no-error=R001", "no-R001") into the
// policy. Fails for unknown codes and for those that cannot be lowered.
Status add_warning_flag(std::string_view flag, DiagPolicy& policy);

}  // namespace ktx::rules
