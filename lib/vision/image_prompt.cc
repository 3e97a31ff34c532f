#include "lib/vision/image_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "lib/runtime/images/image_tokens.h"
#include "lib/text/text_spans.h"

namespace ktx::vision {
namespace {

// Spans are sorted: of those that begin at or before `at`, the last one decides.
bool is_outside(const text::MarkedText& prompt, size_t at) {
  const auto behind = std::ranges::upper_bound(prompt.outside, at, {}, &text::TextSpan::begin);
  return behind != prompt.outside.begin() && at < std::prev(behind)->end;
}

std::vector<size_t> marks_in(const text::MarkedText& prompt, std::string_view mark) {
  std::vector<size_t> places;
  for (size_t at = 0; (at = prompt.text.find(mark, at)) != std::string::npos; at += mark.size()) {
    if (!is_outside(prompt, at)) places.push_back(at);
  }
  return places;
}

Status check_count(const plan::ImageFacts& facts, size_t marks, size_t images) {
  if (marks == 0 || marks == images) return {};
  return Error{fmt::format(
      "the prompt has '{}' {} times for {} images; write it once for each, or not at all",
      facts.mark, marks, images)};
}

// The bytes [begin, end) of the prompt, between texts of the model's makers.
text::MarkedText part_of(const text::MarkedText& prompt, size_t begin, size_t end,
                         std::string_view before, std::string_view behind) {
  text::MarkedText part{std::string(before) + prompt.text.substr(begin, end - begin), {}};
  text::add_spans(part.outside, before.size(), prompt.outside, begin, end);
  part.text += behind;
  return part;
}

}  // namespace

Result<ImagePrompt> with_images(const text::Tokenizer& tokenizer, const plan::ImageFacts& facts,
                                text::MarkedText prompt,
                                std::span<const runtime::ReadImage> images) {
  if (images.empty()) return ImagePrompt{tokenizer.encode_prompt(prompt.text, prompt.outside), {}};
  std::vector<size_t> marks = marks_in(prompt, facts.mark);
  if (marks.empty()) {
    text::MarkedText first;
    for (size_t i = 0; i < images.size(); ++i) first.text += facts.mark;
    text::add_spans(first.outside, first.text.size(), prompt.outside, 0, prompt.text.size());
    first.text += prompt.text;
    prompt = std::move(first);
    for (size_t i = 0; i < images.size(); ++i) marks.push_back(i * facts.mark.size());
  }
  KTX_TRY(check_count(facts, marks.size(), images.size()));
  const std::vector<int32_t> line_end = tokenizer.encode(facts.line_end, {.parse_special = true});
  ImagePrompt out;
  size_t at = 0;
  for (size_t i = 0; i <= marks.size(); ++i) {
    const bool last = i == marks.size();
    const text::MarkedText part =
        part_of(prompt, at, last ? prompt.text.size() : marks[i],
                i == 0 ? std::string_view() : std::string_view(facts.behind),
                last ? std::string_view() : std::string_view(facts.before));
    const std::vector<int32_t> ids =
        i == 0 ? tokenizer.encode_prompt(part.text, part.outside)
               : tokenizer.encode(part.text, {.parse_special = true, .outside = part.outside});
    out.ids.insert(out.ids.end(), ids.begin(), ids.end());
    if (last) break;
    runtime::add_image(images[i], facts, line_end, out.ids, out.images);
    at = marks[i] + facts.mark.size();
  }
  return out;
}

}  // namespace ktx::vision
