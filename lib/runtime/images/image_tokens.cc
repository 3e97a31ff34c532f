#include "lib/runtime/images/image_tokens.h"

namespace ktx::runtime {

void add_image(const ReadImage& image, const plan::ImageFacts& facts,
               std::span<const int32_t> line_end, std::vector<int32_t>& ids,
               std::vector<ImageTokens>& runs) {
  const int64_t run = line_end.empty() ? image.tokens : image.columns;
  for (int64_t row = 0; row < image.tokens; row += run) {
    if (row > 0) ids.insert(ids.end(), line_end.begin(), line_end.end());
    runs.push_back(
        {std::ssize(ids), run, image.rows, row, facts.causal, facts.axes ? image.columns : 0});
    ids.insert(ids.end(), static_cast<size_t>(run), image.id);
  }
}

}  // namespace ktx::runtime
