#include "lib/text/chat_template/jinja_strftime.h"

#include <locale.h>
#include <time.h>

#include <algorithm>

namespace ktx::text::jinja {
namespace {

// The C locale, made once and kept: freeing it would race with its users.
locale_t c_locale() {
  static const locale_t locale = newlocale(LC_ALL_MASK, "C", nullptr);
  return locale;
}

}  // namespace

std::string format_time(const std::tm& time, std::string_view format) {
  std::string out;
  while (!format.empty()) {
    const size_t percent = std::min(format.find('%'), format.size());
    out += format.substr(0, percent);
    format.remove_prefix(percent);
    if (format.size() < 2) {
      out += format;
      break;
    }
    // %d or %-d; anything else (widths, %E…) is no directive of ours.
    const bool flagged = std::string_view("-_0^#").find(format[1]) != std::string_view::npos;
    const size_t length = flagged ? 3 : 2;
    const std::string directive(format.substr(0, length));
    const char letter = directive.back();
    format.remove_prefix(directive.size());
    static constexpr std::string_view kLetters = "aAbBcCdDeFgGhHIjklmMnpPrRsStTuUVwWxXyY%";
    if (letter == 'f' && directive.size() == 2) {
      out += "000000";
    } else if ((letter == 'z' || letter == 'Z') && directive.size() == 2) {
      // a naive time has no zone
    } else if (directive.size() == length && kLetters.find(letter) != std::string_view::npos) {
      char buffer[80];
      out.append(buffer, strftime_l(buffer, sizeof(buffer), directive.c_str(), &time, c_locale()));
    } else {
      out += directive;
    }
  }
  return out;
}

}  // namespace ktx::text::jinja
