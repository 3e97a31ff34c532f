#include "lib/text/grammar/string_formats.h"

namespace ktx::text::grammar {
namespace {

struct Format {
  std::string_view name;
  std::string_view pattern;
};
#define KTX_DATE "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"
#define KTX_TIME \
  "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define KTX_OCTET "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
constexpr Format kFormats[] = {
    // Days 29 to 31 exist in some months only.
    {"date", "^(" KTX_DATE "|[0-9]{4}-(0[13-9]|1[0-2])-(29|30)|[0-9]{4}-(0[13578]|1[02])-31)$"},
    {"time", "^" KTX_TIME "$"},
    {"date-time", "^(" KTX_DATE
                  "|[0-9]{4}-(0[13-9]|1[0-2])-(29|30)|[0-9]{4}-(0[13578]|1[02])-31)T" KTX_TIME "$"},
    {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
    {"ipv4", "^" KTX_OCTET "\\." KTX_OCTET "\\." KTX_OCTET "\\." KTX_OCTET "$"},
};
#undef KTX_DATE
#undef KTX_TIME
#undef KTX_OCTET

}  // namespace

std::string_view pattern_of_format(std::string_view name) {
  for (const Format& row : kFormats) {
    if (row.name == name) return row.pattern;
  }
  return "";
}

}  // namespace ktx::text::grammar
