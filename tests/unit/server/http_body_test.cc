#include "lib/server/http/http_body.h"

#include <gtest/gtest.h>
#include <zlib.h>

namespace ktx::server {
namespace {

constexpr uint64_t kMost = 1000;

HttpHead chunked() {
  HttpHead head;
  head.chunked = true;
  return head;
}

// "200 TEXT+REST" for what was taken, "400" for what was not, "..." for what has not ended.
std::string read(const HttpHead& head, std::string bytes, size_t piece) {
  BodyReader body(head, kMost);
  std::string held;
  for (size_t at = 0; at < bytes.size() && !body.done() && !body.fault(); at += piece) {
    held += bytes.substr(at, piece);
    held.erase(0, body.take(held));
    if (body.done()) held += bytes.substr(std::min(bytes.size(), at + piece));
  }
  if (body.fault()) return std::to_string(body.fault()->status);
  return body.done() ? "200 " + body.text() + "+" + held : "...";
}

TEST(HttpBody, AChunkedBodyIsReadStrictly) {
  const std::pair<std::string, std::string> kCases[] = {
      {"5\r\nhello\r\n0\r\n\r\nGET", "200 hello+GET"},
      {"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", "200 hello+"},
      {"A\r\n0123456789\r\n000\r\n\r\n", "200 0123456789+"},
      {"1;a=b;c=\"d\"\r\nx\r\n0;e\r\n\r\n", "200 x+"},
      {"0\r\n\r\n", "200 +"},
      {"1\r\nx\r\n0\r\nTrailer: y\r\nOther:\r\n\r\n", "200 x+"},
      {"5\r\nhel", "..."},
      {"0\r\n", "..."},
      {"0\r\nTrailer: y\r\n", "..."},
      {"\r\n", "400"},
      {"x\r\n", "400"},
      {"-1\r\n", "400"},
      {"+1\r\nx\r\n", "400"},
      {"0x1\r\nx\r\n", "400"},
      {" 1\r\nx\r\n", "400"},
      {"1 \r\nx\r\n", "400"},
      {"1 ;a\r\nx\r\n", "400"},
      {"1\nx\r\n", "400"},
      {"1\r\nx\n", "400"},
      {"1\rx", "400"},
      {"1\r\nxy\r\n", "400"},
      {"2\r\nx\r\n0\r\n\r\n", "400"},
      {"1;\x01\r\nx\r\n", "400"},
      {"1;a\nb\r\nx\r\n", "400"},
      {"FFFFFFFFFFFFFFFF\r\n", "400"},
      {"10000000000000001\r\n", "400"},
      {"3E9\r\n", "413"},
      {"FFFFFFFFFFFFFFF\r\n", "413"},
      {"0\r\nno colon\r\n", "400"},
      {"0\r\n folded: 1\r\n", "400"},
      {"0\r\nX : 1\r\n", "400"},
      {"0\r\nX: 1\n\r\n", "400"},
      {std::string(5000, '0') + "1\r\nx\r\n", "400"},
  };
  for (const auto& [bytes, expected] : kCases) {
    for (const size_t piece : {1, 2, 7, 10000}) {
      EXPECT_EQ(read(chunked(), bytes, piece), expected) << bytes << ", " << piece << " at once";
    }
  }
}

TEST(HttpBody, WhatStandsBesideTheChunksIsBounded) {
  std::string extensions, fields = "0\r\n";
  for (int i = 0; i < 900; ++i) extensions += "1;extension-" + std::to_string(i) + "\r\nx\r\n";
  EXPECT_EQ(read(chunked(), extensions, 1000), "...");
  for (int i = 0; i < 300; ++i) extensions += "1;extension-" + std::string(60, 'e') + "\r\nx\r\n";
  EXPECT_EQ(read(chunked(), extensions, 1000), "400");
  for (int i = 0; i < 300; ++i) fields += "Name: " + std::string(100, 'v') + "\r\n";
  EXPECT_EQ(read(chunked(), fields, 1000), "431");
}

TEST(HttpBody, AnAnnouncedBodyTakesMemoryAsItArrives) {
  HttpHead head;
  head.length = 900;
  BodyReader body(head, kMost);
  EXPECT_LT(body.memory_bytes(), 100u) << "announced is not arrived";
  EXPECT_EQ(body.take(std::string(500, 'a')), 500u);
  EXPECT_LE(body.memory_bytes(), 920u);
  EXPECT_EQ(body.take(std::string(500, 'b')), 400u);
  EXPECT_TRUE(body.done());
  EXPECT_EQ(body.text().size(), 900u);
  EXPECT_LE(body.memory_bytes(), 920u);
  head.length = 1001;
  EXPECT_EQ(BodyReader(head, kMost).fault()->status, 413);
  head.length = 0;
  EXPECT_TRUE(BodyReader(head, kMost).done());
}

std::string from_hex(std::string_view hex) {
  std::string out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    out += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return out;
}
// As gzip makes them: "hello"; the same with all fields that a head may have; 100,000 zeros.
const std::string kHello = from_hex("1f8b0800000000000203cb48cdc9c9070086a6103605000000");
const std::string kWhole = from_hex(
    "1f8b081e000000000003020061626e616d6500636f6d6d656e7400a0f0cb48cdc9c9070086a6103605000000");
const std::string kZeros = from_hex(
    "1f8b0800000000000203edc13101000000c2a0f54f6d0d0fa000000000000000000000000000000000000000000000"
    "0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "0008057037d9511d4a0860100");

TEST(HttpBody, AGzipBodyIsUnpackedWithinTheLimit) {
  const auto coded = [](std::string bytes, std::string coding, size_t piece) {
    HttpHead head;
    head.length = bytes.size();
    head.coding = std::move(coding);
    return read(head, std::move(bytes), piece);
  };
  const auto changed = [](std::string bytes, size_t at) {
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    return bytes;
  };
  for (const size_t piece : {1, 2, 7, 1000}) {
    EXPECT_EQ(coded(kHello, "gzip", piece), "200 hello+");
    EXPECT_EQ(coded(kHello, "x-gzip", piece), "200 hello+");
    EXPECT_EQ(coded(kWhole, "gzip", piece), "200 hello+");
    EXPECT_EQ(coded(changed(kWhole, 12), "gzip", piece), "400") << "of another sum";
    EXPECT_EQ(coded(kHello, "identity", piece), "200 " + kHello + "+");
    EXPECT_EQ(coded(kZeros, "gzip", piece), "413") << "1000 at most, of 100,000";
    EXPECT_EQ(coded("hello", "gzip", piece), "400");
    EXPECT_EQ(coded(kHello + "x", "gzip", piece), "400");
    EXPECT_EQ(coded(kHello + kHello, "gzip", piece), "400");
    for (size_t size = 1; size < kHello.size(); ++size) {
      EXPECT_EQ(coded(kHello.substr(0, size), "gzip", piece), "400") << size;
    }
    for (const size_t at : {0, 1, 2, 17, 18, 21, 24}) {
      EXPECT_EQ(coded(changed(kHello, at), "gzip", piece), "400") << at;
    }
    for (const char* coding : {"br", "deflate", "gzip, gzip", "gzip,br", "zip"}) {
      EXPECT_EQ(coded(kHello, coding, piece), "415") << coding;
    }
    EXPECT_EQ(coded("", "br", piece), "200 +") << "no body, no coding";
  }
  HttpHead head = chunked();
  head.coding = "gzip";
  EXPECT_EQ(read(head, "19\r\n" + kHello + "\r\n0\r\n\r\nGET", 3), "200 hello+GET");
  EXPECT_EQ(read(head, "0\r\n\r\n", 3), "400");
}

// Bits that are left over behind the last one, 0 to 7, are not of the sums.
TEST(HttpBody, AGzipBodyMayEndAtAnyBit) {
  for (size_t letters = 1; letters < 64; ++letters) {
    std::string text;
    for (size_t i = 0; i < letters; ++i) text += static_cast<char>('a' + i * i % 26);
    std::string packed(200, '\0');
    z_stream stream = {};
    ASSERT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_in = reinterpret_cast<Bytef*>(text.data());
    stream.avail_in = static_cast<uInt>(text.size());
    stream.next_out = reinterpret_cast<Bytef*>(packed.data());
    stream.avail_out = static_cast<uInt>(packed.size());
    ASSERT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
    packed.resize(stream.total_out);
    deflateEnd(&stream);
    HttpHead head;
    head.length = packed.size();
    head.coding = "gzip";
    for (const size_t piece : {1, 2, 3, 1000}) {
      EXPECT_EQ(read(head, packed, piece), "200 " + text + "+") << letters << " in " << piece;
    }
  }
}

}  // namespace
}  // namespace ktx::server
