#include "lib/images/decoders.h"

#ifdef KTX_JPEG
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include <jpeglib.h>

#include <jerror.h>
#endif

namespace ktx::images {

#ifdef KTX_JPEG
namespace {

constexpr int kMaxScans = 100;  // of a progressive file; each takes the time of a whole image
constexpr std::string_view kExif{"Exif\0\0", 6};

// What libjpeg's functions are given; all that a jump out of them leaves behind.
struct JpegReading {
  jpeg_error_mgr errors = {};
  jpeg_progress_mgr progress = {};
  jpeg_decompress_struct jpeg = {};
  std::jmp_buf back = {};
  char message[JMSG_LENGTH_MAX] = {};
  Decoded out;
  std::vector<uint8_t> cmyk;  // a line
  Status size;
  ~JpegReading() { jpeg_destroy_decompress(&jpeg); }
};

JpegReading& reading_of(j_common_ptr jpeg) {
  return *static_cast<JpegReading*>(jpeg->client_data);
}

void fail(j_common_ptr jpeg) {
  JpegReading& reading = reading_of(jpeg);
  jpeg->err->format_message(jpeg, reading.message);
  std::longjmp(reading.back, 1);
}

// A file that ends early is filled with grey; other oddities change a few pixels, or none.
void warn(j_common_ptr jpeg, int level) {
  const int code = jpeg->err->msg_code;
  if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER)) fail(jpeg);
}

void limit_scans(j_common_ptr jpeg) {
  if (reinterpret_cast<j_decompress_ptr>(jpeg)->input_scan_number <= kMaxScans) return;
  JpegReading& reading = reading_of(jpeg);
  std::snprintf(reading.message, sizeof(reading.message), "more than %d scans", kMaxScans);
  std::longjmp(reading.back, 1);
}

int orientation_of(const jpeg_decompress_struct& jpeg) {
  for (const jpeg_marker_struct* marker = jpeg.marker_list; marker; marker = marker->next) {
    const std::span<const std::byte> data =
        std::as_bytes(std::span(marker->data, marker->data_length));
    if (marker->marker != JPEG_APP0 + 1 || data.size() < kExif.size()) continue;
    if (std::memcmp(data.data(), kExif.data(), kExif.size()) != 0) continue;
    return exif_orientation(data.subspan(kExif.size()));
  }
  return 1;
}

// Adobe's, whose inks are stored the other way round.
void rgb_of_cmyk(const uint8_t* cmyk, int64_t count, uint8_t* rgb) {
  for (int64_t i = 0; i < count; ++i, cmyk += 4, rgb += 3) {
    for (int c = 0; c < 3; ++c) {
      // paper * (1 - ink), rounded as x / 255 is by shifts
      const int product = (255 - cmyk[c]) * cmyk[3] + 128;
      rgb[c] = static_cast<uint8_t>(cmyk[3] - ((product + (product >> 8)) >> 8));
    }
  }
}

// What may jump; false where it did, or where the size is above the limits.
bool read(JpegReading& reading, std::span<const std::byte> bytes, const ImageLimits& limits) {
  jpeg_decompress_struct& jpeg = reading.jpeg;
  if (setjmp(reading.back)) return false;
  jpeg_mem_src(&jpeg, reinterpret_cast<const unsigned char*>(bytes.data()),
               static_cast<unsigned long>(bytes.size()));
  jpeg_save_markers(&jpeg, JPEG_APP0 + 1, 0xffff);
  jpeg_read_header(&jpeg, TRUE);
  Image& image = reading.out.image;
  image.width = jpeg.image_width;
  image.height = jpeg.image_height;
  reading.size = check_size(image.width, image.height, limits);
  if (!reading.size.ok()) return false;
  const bool inks = jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK;
  jpeg.out_color_space = inks ? JCS_CMYK : JCS_RGB;
  jpeg.progress = &reading.progress;
  jpeg_start_decompress(&jpeg);
  image.rgb.resize(static_cast<size_t>(3 * image.width * image.height));
  reading.cmyk.resize(inks ? static_cast<size_t>(4 * image.width) : 0);
  while (jpeg.output_scanline < jpeg.output_height) {
    uint8_t* const to = image.rgb.data() + static_cast<size_t>(jpeg.output_scanline) *
                                               static_cast<size_t>(3 * image.width);
    JSAMPROW line = inks ? reading.cmyk.data() : to;
    jpeg_read_scanlines(&jpeg, &line, 1);
    if (inks) rgb_of_cmyk(line, image.width, to);
  }
  reading.out.orientation = orientation_of(jpeg);
  return true;
}

}  // namespace

Result<Decoded> decode_jpeg(std::span<const std::byte> bytes, const ImageLimits& limits) {
  JpegReading reading;
  reading.jpeg.err = jpeg_std_error(&reading.errors);
  reading.errors.error_exit = fail;
  reading.errors.emit_message = warn;
  reading.progress.progress_monitor = limit_scans;
  jpeg_create_decompress(&reading.jpeg);
  reading.jpeg.client_data = &reading;
  if (read(reading, bytes, limits)) return std::move(reading.out);
  if (!reading.size.ok()) return reading.size.error();
  return Error{std::string("damaged: ") + reading.message};
}

#else

Result<Decoded> decode_jpeg(std::span<const std::byte>, const ImageLimits&) {
  return Error{
      "this ktx-run was built without libjpeg-turbo; build it with libjpeg-dev (docs/building.md)"};
}

#endif

}  // namespace ktx::images
