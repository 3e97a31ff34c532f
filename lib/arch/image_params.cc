// What a tower reads of an image: its size, patches and squares of patches.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "lib/arch/param_part.h"
#include "lib/formats/shape_limits.h"

namespace ktx::arch {
namespace {

constexpr int32_t kChannels = 3;
constexpr double kMaxMean = 1e3, kLeastDeviation = 1e-6;

class ImageParams : ParamPart {
 public:
  explicit ImageParams(const ParamPart& part) : ParamPart(part) {}

  void read() {
    p_.vocab = 1;  // there are no tokens: what comes with a row is all that counts
    p_.image_size = small("image_size", 1, kMaxImageSide);
    p_.patch_size = small("patch_size", 1, kMaxImageSide);
    p_.image_pool = small("image_pool", 1, kMaxImageSide);
    p_.image_width = in_.integer("projection_dim", 1, kMaxHidden);
    p_.image_keeps_shape = family_.tower.keeps_shape;
    p_.image_unfold = family_.tower.unfold;
    p_.image_bias = in_.flag("multimodal_projector_bias").value_or(false);
    const char* const activation = family_.gateless ? "use_gelu" : "use_silu";
    if (!in_.flag(activation).value_or(false)) {
      in_.fail(fmt::format("'{}' is not set: other activations of such a tower are not known",
                           activation));
    }
    check_channels("image_mean", -kMaxMean);
    check_channels("image_std", kLeastDeviation);
    if (p_.image_size == 0 || p_.patch_size == 0 || p_.image_pool == 0) return;
    const bool has_table = family_.has_role(ir::Role::GridEmbedding);
    if ((!p_.image_keeps_shape || has_table) && p_.image_size % p_.patch_size != 0) {
      return in_.fail(fmt::format("'patch_size' {} does not divide 'image_size' {}", p_.patch_size,
                                  p_.image_size));
    }
    if (has_table) p_.grid_side = p_.image_size / p_.patch_size;
    if (family_.has_config_key("image_max_pixels")) {
      read_pixels();
    } else if (p_.patch_columns() % p_.image_pool != 0) {
      in_.fail(fmt::format("'image_pool' {} does not divide the {} patches of a side",
                           p_.image_pool, p_.patch_columns()));
    }
    if (p_.patches() > kMaxImagePatches) {
      const bool by_pixels = p_.image_most_pixels > 0;
      in_.fail(fmt::format("'{}' {} with patches of {} gives {} patches, expected at most {}",
                           by_pixels ? "image_max_pixels" : "image_size",
                           by_pixels ? p_.image_most_pixels : p_.image_size, p_.patch_size,
                           p_.patches(), kMaxImagePatches));
    }
    p_.context = p_.patches();
    read_parts();
    p_.given_width = int64_t{kChannels} * p_.patch_size * p_.patch_size;
  }

 private:
  void read_pixels() {
    const int64_t square = p_.square_side() * p_.square_side();
    p_.image_most_pixels = in_.integer("image_max_pixels", 1, kMaxImagePixels);
    const int64_t least = in_.integer("image_min_pixels", 1, kMaxImagePixels);
    if (p_.image_most_pixels < std::max(square, least)) {
      in_.fail(
          fmt::format("'image_max_pixels' is {}, expected at least the {} of 'image_min_pixels' "
                      "and the {} of a square of {} x {} patches",
                      p_.image_most_pixels, least, square, p_.image_pool, p_.image_pool));
      p_.image_most_pixels = square;
    }
  }

  // The layers that give a part (deepstack).
  void read_parts() {
    const auto flags = in_.config().floats("deepstack_layers");
    if (!flags || !family_.has_config_key("deepstack_layers")) return;
    if (flags->size() != p_.shapes.size()) {
      return in_.fail(fmt::format("'deepstack_layers' has {} entries, expected {}", flags->size(),
                                  p_.shapes.size()));
    }
    for (size_t i = 0; i < flags->size(); ++i) p_.shapes[i].image_part = (*flags)[i] != 0;
    const auto parts = std::ranges::count(p_.shapes, true, &LayerShape::image_part);
    if (parts >= kMaxImageParts) {
      in_.fail(fmt::format("'deepstack_layers' has {} layers, expected below {}", parts,
                           kMaxImageParts));
    }
  }

  void check_channels(std::string_view key, double least) {
    const auto numbers = in_.config().floats(key);
    const auto count = numbers ? std::ssize(*numbers) : 0;
    if (count != kChannels) {
      return in_.fail(
          fmt::format("'{}' has {} numbers, expected one for each of 3 channels", key, count));
    }
    for (const double number : *numbers) {
      if (number >= least && number <= kMaxMean) continue;
      return in_.fail(fmt::format("'{}' has {}, expected {} to {}", key, number, least, kMaxMean));
    }
  }
};

}  // namespace

void read_images(const ParamPart& part) {
  ImageParams(part).read();
}

}  // namespace ktx::arch
