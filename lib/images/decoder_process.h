// Decodes images in a process without rights: libraries that read what strangers send are where
// mistakes are found.
//
//   auto decoder = KTX_TRY(DecoderProcess::start({"/proc/self/exe", kDecoderCommand}));
//   Image image = KTX_TRY(decoder->decode(bytes));      // from any thread
//
// The program is started once, and its process makes another one for each image, which sees no
// other image and none of this process's memory. It has the bytes, a pipe for the pixels, a limit
// of memory and time, and of the system's calls those that compute (restrict_to_computing). One
// that ends early, or takes too long, is an error of its image alone.
//
//   this process            helper                    process of an image
//   decode() -- a socket: bytes, a pipe --> fork ---> restrict, decode
//            <------------- the pipe: size, pixels or a message ----
//
// What comes back is checked like a stranger's, too.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "lib/images/decode.h"
#include "lib/images/image.h"
#include "lib/support/result.h"

namespace ktx::images {

// The word by which a program knows that it is to call serve_decoder().
inline constexpr const char* kDecoderCommand = "decode-images";

class DecoderProcess {
 public:
  // `command`: a program and its words; it calls serve_decoder().
  static Result<std::unique_ptr<DecoderProcess>> start(std::vector<std::string> command);
  ~DecoderProcess();  // ends the helper
  DecoderProcess(const DecoderProcess&) = delete;
  DecoderProcess& operator=(const DecoderProcess&) = delete;

  // As decode_image(). A helper that is gone is started again; in a sandbox it cannot be, and the
  // message says so.
  Result<Image> decode(std::span<const std::byte> bytes, const ImageLimits& limits = {},
                       ImagePart part = ImagePart::All);

  // Why its processes have the rights of this one; "": they have none.
  const std::string& unconfined() const { return unconfined_; }
  pid_t helper() const { return pid_; }

 private:
  explicit DecoderProcess(std::vector<std::string> command) : command_(std::move(command)) {}
  Status start_helper();
  void end_helper();
  Result<int> order(int file, uint64_t bytes, const ImageLimits& limits, ImagePart part);

  const std::vector<std::string> command_;
  std::string unconfined_;
  std::mutex mutex_;  // of what follows
  int socket_ = -1;
  pid_t pid_ = -1;
};

// The helper: serves orders until the other side is gone. Its exit status.
int serve_decoder();

}  // namespace ktx::images
