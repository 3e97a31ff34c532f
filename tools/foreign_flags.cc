#include "tools/foreign_flags.h"

namespace ktx::tools {

std::string foreign_flag_advice(std::string_view tool, std::string_view flag) {
  struct Row {
    std::string_view tool, flag, advice;
  };
  static constexpr Row kRows[] = {
#define KTX_FOREIGN_FLAG(tool, flag, advice) {tool, flag, advice},
#include "tools/foreign_flags.def"
#undef KTX_FOREIGN_FLAG
  };
  for (const Row& row : kRows) {
    if (row.flag == flag && (row.tool == tool || row.tool == "both"))
      return std::string(row.advice);
  }
  return "";
}

}  // namespace ktx::tools
