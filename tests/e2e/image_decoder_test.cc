// The process that decodes images (lib/images/decoder_process.h): the same pixels and messages as
// without it, and what becomes of files that end it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "lib/images/decoder_process.h"
#include "tests/support/image_samples.h"
#include "tests/support/run_program.h"

namespace ktx::images {
namespace {

using testing::from_base64;
using ::testing::HasSubstr;
using testing::kImageSamples;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::unique_ptr<DecoderProcess> start() {
  auto decoder = DecoderProcess::start({testing::ktx_run(), kDecoderCommand});
  EXPECT_TRUE(decoder.ok()) << decoder.error().message;
  return decoder.ok() ? decoder.take() : nullptr;
}

TEST(ImageDecoder, GivesThePixelsAndMessagesOfItsDecoders) {
  const auto decoder = start();
  ASSERT_TRUE(decoder);
  for (const testing::ImageSample& sample : kImageSamples) {
    const std::string file = from_base64(sample.base64);
    const auto here = decode_image(bytes_of(file)), there = decoder->decode(bytes_of(file));
    ASSERT_TRUE(there.ok()) << sample.name << ": " << there.error().message;
    EXPECT_EQ(there->width, here->width);
    EXPECT_EQ(there->rgb, here->rgb) << sample.name;
  }
  const std::string file = from_base64(kImageSamples[0].base64);
  const auto header = decoder->decode(bytes_of(file), {}, ImagePart::Header);
  ASSERT_TRUE(header.ok());
  EXPECT_EQ(header->width, kImageSamples[0].width);
  EXPECT_TRUE(header->rgb.empty());
  for (const std::string& bad : {std::string(), std::string("GIF89a"), file.substr(0, 60)}) {
    EXPECT_EQ(decoder->decode(bytes_of(bad)).error().message,
              decode_image(bytes_of(bad)).error().message);
  }
  ImageLimits small;
  small.pixels = 8;
  EXPECT_THAT(decoder->decode(bytes_of(file), small).error().message, HasSubstr("7 x 5 pixels"));
}

TEST(ImageDecoder, ManyThreadsMayDecodeAtOnce) {
  const auto decoder = start();
  ASSERT_TRUE(decoder);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::string file = from_base64(kImageSamples[t].base64);
      for (int i = 0; i < 20; ++i) {
        const auto image = decoder->decode(bytes_of(file));
        ASSERT_TRUE(image.ok()) << image.error().message;
        EXPECT_EQ(image->width, kImageSamples[t].width);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ImageDecoder, AHelperThatIsGoneIsStartedAgain) {
  const auto decoder = start();
  ASSERT_TRUE(decoder);
  const std::string file = from_base64(kImageSamples[0].base64);
  const pid_t first = decoder->helper();
  kill(first, SIGKILL);
  // Until the system has taken it down its socket may still take an order.
  while (kill(first, 0) == 0 && decoder->helper() == first) (void)decoder->decode(bytes_of(file));
  EXPECT_TRUE(decoder->decode(bytes_of(file)).ok());
  EXPECT_NE(decoder->helper(), first);
}

TEST(ImageDecoder, ProgramsThatAreNoneAreNamed) {
  const auto missing = DecoderProcess::start({"/nowhere/ktx-run", kDecoderCommand});
  EXPECT_THAT(missing.error().message, HasSubstr("/nowhere/ktx-run"));
  const auto other = DecoderProcess::start({"/bin/true"});
  EXPECT_THAT(other.error().message, HasSubstr("ended at its start"));
}

// Bytes changed, cut out, put in and cut off. KTX_MUTATED_IMAGES=10000: so many.
TEST(ImageDecoder, DamagedFilesAreErrorsOrImages) {
  const auto decoder = start();
  ASSERT_TRUE(decoder);
  const char* const wanted = std::getenv("KTX_MUTATED_IMAGES");
  const int count = wanted ? std::atoi(wanted) : 300;
  std::mt19937_64 random(20261201);
  int images = 0, refused = 0, ended = 0;
  for (int i = 0; i < count; ++i) {
    std::string file = from_base64(kImageSamples[random() % std::size(kImageSamples)].base64);
    for (uint64_t changes = 1 + random() % 8; changes > 0 && !file.empty(); --changes) {
      const size_t at = random() % file.size();
      const size_t length = std::min<size_t>(1 + random() % 16, file.size() - at);
      switch (random() % 4) {
        case 0:
          file[at] = static_cast<char>(random());
          break;
        case 1:
          file.erase(at, length);
          break;
        case 2:
          file.insert(at, file.substr(random() % file.size(), length));
          break;
        default:
          if (random() % 4 == 0) file.resize(at);
      }
    }
    const auto image = decoder->decode(bytes_of(file));
    if (image) {
      ++images;
      EXPECT_EQ(std::ssize(image->rgb), 3 * image->width * image->height);
    } else {
      ++refused;
      ended += image.error().message.find("ended early") != std::string::npos;
    }
  }
  EXPECT_EQ(ended, 0) << "a decoder did not survive a file";
  EXPECT_GT(images, 0);
  EXPECT_GT(refused, 0);
  fmt::print("{} damaged files: {} images, {} refused, {} ended their process\n", count, images,
             refused, ended);
  EXPECT_TRUE(decoder->decode(bytes_of(from_base64(kImageSamples[0].base64))).ok());
}

// What the filter forbids: tests/unit/support/sandbox_test.cc.
TEST(ImageDecoder, ItsProcessesHaveNoRightsWhereASandboxCanBeHad) {
  const auto decoder = start();
  ASSERT_TRUE(decoder);
  const auto sandbox =
      testing::run_program({testing::ktx_compile(), "--sandbox", "--explain-code", "S001"});
  if (sandbox.status != 0) GTEST_SKIP() << sandbox.err;
  EXPECT_EQ(decoder->unconfined(), "");
}

}  // namespace
}  // namespace ktx::images
