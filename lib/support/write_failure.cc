#include "lib/support/write_failure.h"

#include <fmt/format.h>

#include <cerrno>
#include <system_error>

namespace ktx {
namespace {

struct Row {
  int error_number;
  const char* text;
  const char* mend;
};

constexpr Row kRows[] = {
#define KTX_WRITE_FAILURE(error_number, text, mend) {error_number, text, mend},
#include "lib/support/write_failures.def"
};

}  // namespace

std::string write_failure(int error_number) {
  for (const Row& row : kRows) {
    if (row.error_number == error_number) return fmt::format("{}; {}", row.text, row.mend);
  }
  return std::error_code(error_number, std::generic_category()).message();
}

}  // namespace ktx
