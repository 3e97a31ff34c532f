#include "lib/images/decoders.h"

#ifdef KTX_JPEG
#include <algorithm>
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
  std::vector<uint8_t> cmyk;        // a line
  std::span<const std::byte> exif;  // of the file's bytes
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

// The first Exif block; other segments are passed over. (libjpeg's own list of segments takes time
// by the square of their number.) All of the file is in memory, so what is missing is behind its
// end.
boolean take_exif(j_decompress_ptr jpeg) {
  jpeg_source_mgr& source = *jpeg->src;
  if (source.bytes_in_buffer < 2) {
    source.skip_input_data(jpeg, 2);
    return TRUE;
  }
  const JOCTET* const at = source.next_input_byte;
  const size_t length = std::max<size_t>(2, size_t{at[0]} << 8 | at[1]);
  const auto data =
      std::as_bytes(std::span(at, std::min(length, source.bytes_in_buffer))).subspan(2);
  JpegReading& reading = reading_of(reinterpret_cast<j_common_ptr>(jpeg));
  const bool is_exif =
      data.size() >= kExif.size() && std::memcmp(data.data(), kExif.data(), kExif.size()) == 0;
  if (is_exif && reading.exif.empty()) reading.exif = data.subspan(kExif.size());
  source.skip_input_data(jpeg, static_cast<long>(length));
  return TRUE;
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
bool read(JpegReading& reading, std::span<const std::byte> bytes, const ImageLimits& limits,
          ImagePart part) {
  jpeg_decompress_struct& jpeg = reading.jpeg;
  if (setjmp(reading.back)) return false;
  jpeg_create_decompress(&jpeg);
  jpeg_mem_src(&jpeg, reinterpret_cast<const unsigned char*>(bytes.data()),
               static_cast<unsigned long>(bytes.size()));
  jpeg_set_marker_processor(&jpeg, JPEG_APP0 + 1, take_exif);
  jpeg_read_header(&jpeg, TRUE);
  Image& image = reading.out.image;
  image.width = jpeg.image_width;
  image.height = jpeg.image_height;
  reading.size = check_size(image.width, image.height, limits);
  if (!reading.size.ok()) return false;
  // What comes between scans counts no more.
  if (!reading.exif.empty()) reading.out.orientation = exif_orientation(reading.exif);
  if (part == ImagePart::Header) return true;
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
  return true;
}

}  // namespace

Result<Decoded> decode_jpeg(std::span<const std::byte> bytes, const ImageLimits& limits,
                            ImagePart part) {
  JpegReading reading;
  reading.jpeg.err = jpeg_std_error(&reading.errors);
  reading.errors.error_exit = fail;
  reading.errors.emit_message = warn;
  reading.progress.progress_monitor = limit_scans;
  reading.jpeg.client_data = &reading;
  if (read(reading, bytes, limits, part)) return std::move(reading.out);
  if (!reading.size.ok()) return reading.size.error();
  return Error{std::string("damaged: ") + reading.message};
}

#else

Result<Decoded> decode_jpeg(std::span<const std::byte>, const ImageLimits&, ImagePart) {
  return Error{
      "this ktx-run was built without libjpeg-turbo; build it with libjpeg-dev (docs/building.md)"};
}

#endif

}  // namespace ktx::images
