#include "lib/text/chat_template/string_building.h"

#include "lib/text/chat_template/jinja_print.h"
#include "lib/text/chat_template/unicode_text.h"

namespace ktx::text::jinja {

Result<Value> replace_text(Meter& meter, const Value& whole, std::string_view from, const Value& to,
                           int64_t count, bool markup) {
  MeteredText out(meter);
  std::string_view text = whole.text();
  for (; count != 0; --count) {
    const size_t found = find_text(text, from);
    if (found == std::string_view::npos) break;
    KTX_TRY(meter.step());
    KTX_TRY(out.append(whole.string(), text.substr(0, found)));
    KTX_TRY(out.append(to));
    text.remove_prefix(found + from.size());
    if (!from.empty()) continue;
    if (text.empty()) break;
    const size_t point = code_point_bytes(text);
    KTX_TRY(out.append(whole.string(), text.substr(0, point)));
    text.remove_prefix(point);
  }
  KTX_TRY(out.append(whole.string(), text));
  return out.take_string(markup);
}

Result<std::string> justify(Meter& meter, std::string_view text, int64_t width,
                            std::string_view fill, Alignment alignment) {
  const int64_t missing = width - count_code_points(text);
  if (missing <= 0) return std::string(text);
  KTX_TRY(meter.reserve(missing));
  KTX_TRY(meter.step(missing / 16));
  KTX_TRY(meter.reserve(missing * 4));
  const int64_t left = alignment == Alignment::Left    ? 0
                       : alignment == Alignment::Right ? missing
                                                       : missing / 2 + (missing & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += text;
  for (int64_t i = left; i < missing; ++i) out += fill;
  return out;
}

}  // namespace ktx::text::jinja
