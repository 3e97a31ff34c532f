#include "lib/images/decoders.h"

#ifdef KTX_PNG
#include <png.h>

#include <csetjmp>
#include <cstring>
#include <string>
#include <utility>
#include <vector>
#endif

namespace ktx::images {

#ifdef KTX_PNG
namespace {

constexpr png_alloc_size_t kMaxChunkBytes = 1 << 20;  // of texts and profiles, which are not needed
constexpr png_uint_32 kMaxTextChunks = 8;

// What libpng's functions are given; all that a jump out of them leaves behind.
struct PngReading {
  std::span<const std::byte> rest;
  std::string error;
  std::vector<png_bytep> lines;
  Decoded out;
  Status size;
  bool alpha = false;
  png_structp png = nullptr;
  png_infop info = nullptr;
  ~PngReading() { png_destroy_read_struct(&png, &info, nullptr); }
};

void take_bytes(png_structp png, png_bytep to, size_t count) {
  auto& reading = *static_cast<PngReading*>(png_get_io_ptr(png));
  if (count > reading.rest.size()) png_error(png, "the file ends early");
  std::memcpy(to, reading.rest.data(), count);
  reading.rest = reading.rest.subspan(count);
}

void fail(png_structp png, png_const_charp message) {
  static_cast<PngReading*>(png_get_error_ptr(png))->error = message;
  png_longjmp(png, 1);
}

void ignore(png_structp, png_const_charp) {}

// To 8 bits of red, green and blue, and alpha where the file has some; whether it has.
bool ask_for_rgb(png_structp png, png_infop info) {
  const int type = png_get_color_type(png, info);
  const bool one_color = png_get_valid(png, info, PNG_INFO_tRNS) != 0;
  png_set_strip_16(png);
  if (one_color) png_set_tRNS_to_alpha(png);
  if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
  if (type == PNG_COLOR_TYPE_GRAY && png_get_bit_depth(png, info) < 8) {
    png_set_expand_gray_1_2_4_to_8(png);
  }
  if ((type & PNG_COLOR_MASK_COLOR) == 0) png_set_gray_to_rgb(png);
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
  return one_color || (type & PNG_COLOR_MASK_ALPHA) != 0;
}

void read_orientation(PngReading& reading) {
#ifdef PNG_eXIf_SUPPORTED
  png_uint_32 size = 0;
  png_bytep exif = nullptr;
  if (png_get_eXIf_1(reading.png, reading.info, &size, &exif) == 0) return;
  reading.out.orientation = exif_orientation(std::as_bytes(std::span(exif, size)));
#else
  (void)reading;
#endif
}

// What may jump; false where it did, or where the size is above the limits. Nothing in it has a
// destructor.
bool read(PngReading& reading, const ImageLimits& limits, ImagePart part) {
  png_structp const png = reading.png;
  if (setjmp(png_jmpbuf(png))) return false;
  png_set_read_fn(png, &reading, take_bytes);
  png_set_user_limits(png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // check_size() says more
  png_set_chunk_malloc_max(png, kMaxChunkBytes);
  png_set_chunk_cache_max(png, kMaxTextChunks);
  png_read_info(png, reading.info);
  Image& image = reading.out.image;
  image.width = png_get_image_width(png, reading.info);
  image.height = png_get_image_height(png, reading.info);
  reading.size = check_size(image.width, image.height, limits);
  if (!reading.size.ok()) return false;
  read_orientation(reading);
  if (part == ImagePart::Header) return true;
  reading.alpha = ask_for_rgb(png, reading.info);
  const auto line_bytes = static_cast<size_t>((reading.alpha ? 4 : 3) * image.width);
  if (png_get_rowbytes(png, reading.info) != line_bytes) {
    png_error(png, "its pixels cannot be made RGB");
  }
  reading.lines.resize(static_cast<size_t>(image.height));
  image.rgb.resize(line_bytes * reading.lines.size());
  for (size_t y = 0; y < reading.lines.size(); ++y) {
    reading.lines[y] = image.rgb.data() + y * line_bytes;
  }
  png_read_image(png, reading.lines.data());
  return true;
}

}  // namespace

Result<Decoded> decode_png(std::span<const std::byte> bytes, const ImageLimits& limits,
                           ImagePart part) {
  PngReading reading;
  reading.rest = bytes;
  reading.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reading, fail, ignore);
  if (reading.png) reading.info = png_create_info_struct(reading.png);
  if (!reading.info) return Error{"libpng could not be started"};
  if (read(reading, limits, part)) {
    if (reading.alpha) lay_on_white(reading.out.image);
    return std::move(reading.out);
  }
  if (!reading.size.ok()) return reading.size.error();
  return Error{"damaged: " + reading.error};
}

#else

Result<Decoded> decode_png(std::span<const std::byte>, const ImageLimits&, ImagePart) {
  return Error{
      "this ktx-run was built without libpng; build it with libpng-dev (docs/building.md)"};
}

#endif

}  // namespace ktx::images
