#include "lib/support/sigbus_guard.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "tests/support/temp_dir.h"

namespace ktx {
namespace {

constexpr size_t kBytes = 4 * 4096;

// A file of 'f's, mapped, which can be cut off.
struct Mapped {
  testing::TempDir dir;
  int fd = open(dir.write("f", std::string(kBytes, 'f')).c_str(), O_RDWR);
  char* data = static_cast<char*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  void cut_off() const { ASSERT_EQ(ftruncate(fd, 4096), 0); }
  ~Mapped() {
    munmap(data, kBytes);
    close(fd);
  }
};

TEST(SigbusGuard, ReadsZerosWhereTheFileWasCutOff) {
  const Mapped file;
  ASSERT_NE(file.data, MAP_FAILED);
  const SigbusGuard guard(file.data, kBytes, /*writable=*/false);
  EXPECT_EQ(file.data[4096], 'f');
  EXPECT_FALSE(guard.hit());
  file.cut_off();
  EXPECT_EQ(file.data[3 * 4096 + 1], 0);
  EXPECT_TRUE(guard.hit());
  EXPECT_EQ(file.data[0], 'f');
  EXPECT_EQ(file.data[4096], 0);
}

// The file's later pages are there again, and are not read.
TEST(SigbusGuard, ReadsZerosUpToTheEndBehindTheFirstMissingPage) {
  const Mapped file;
  ASSERT_NE(file.data, MAP_FAILED);
  const SigbusGuard guard(file.data, kBytes, /*writable=*/false);
  file.cut_off();
  EXPECT_EQ(file.data[4096], 0);
  EXPECT_TRUE(guard.hit());
  const std::string again(kBytes, 'f');
  ASSERT_EQ(pwrite(file.fd, again.data(), kBytes, 0), static_cast<ssize_t>(kBytes));
  EXPECT_EQ(file.data[3 * 4096], 0);
  EXPECT_EQ(file.data[0], 'f');
}

TEST(SigbusGuard, SurvivesStoresWhereTheFileWasCutOff) {
  const Mapped file;
  ASSERT_NE(file.data, MAP_FAILED);
  const SigbusGuard guard(file.data, kBytes, /*writable=*/true);
  file.cut_off();
  std::memset(file.data, 'n', kBytes);
  EXPECT_TRUE(guard.hit());
  EXPECT_EQ(file.data[0], 'n');
}

TEST(SigbusGuard, GuardsWhatAnEarlierOneGuarded) {
  for (int i = 0; i < 2; ++i) {
    const Mapped file;
    ASSERT_NE(file.data, MAP_FAILED);
    const SigbusGuard guard(file.data, kBytes, /*writable=*/true);
    EXPECT_FALSE(guard.hit());
    file.cut_off();
    file.data[4096] = 'n';
    EXPECT_TRUE(guard.hit());
  }
}

}  // namespace
}  // namespace ktx
