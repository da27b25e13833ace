// The small pieces of the run time: files, memory, hashes, scores, the self-test's comparison.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fixture.h"
#include "runtime_min/arena.h"
#include "runtime_min/compare.h"
#include "runtime_min/file.h"
#include "runtime_min/json_lines.h"
#include "runtime_min/progress.h"
#include "runtime_min/sha256.h"
#include "runtime_min/stopwatch.h"
#include "runtime_min/topk.h"

namespace graven::runtime {
namespace {

TEST(Error, NamesFilePlaceExpectedFound) {
  const Error error("w.safetensors", "header, byte 12", "a dtype", "\"F31\"");
  EXPECT_STREQ(error.what(), "w.safetensors: header, byte 12: expected a dtype, found \"F31\"");
  EXPECT_EQ(error.file(), "w.safetensors");
  EXPECT_EQ(error.place(), "header, byte 12");
  EXPECT_EQ(error.expected(), "a dtype");
  EXPECT_EQ(error.found(), "\"F31\"");
  EXPECT_EQ(printable(std::string("a\"\\\n\0\xFF", 6)), "\"a\\\"\\\\\\x0a\\x00\\xff\"");
  EXPECT_EQ(printable(std::string(1000, 'x')), "\"" + std::string(80, 'x') + "...\" (1000 bytes)");
}

TEST(AtomicFile, AppearsWholeOrNotAtAll) {
  const TemporaryFolder folder;
  const std::string path = folder / "f";
  {
    AtomicFile file(path);
    file.write("half");
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  const std::string large(3 << 18, 'x');
  {
    AtomicFile file(path);
    file.write(large);
    EXPECT_FALSE(std::filesystem::exists(path));
    file.commit();
  }
  EXPECT_EQ(read_file(path), large);
  {
    AtomicFile file(path);
    file.write("new");
    EXPECT_EQ(read_file(path), large) << "the old one stays until the end";
    file.commit();
  }
  EXPECT_EQ(read_file(path), "new");
  EXPECT_ERROR(AtomicFile(folder / "no/f"), "cannot create: No such file");
  EXPECT_ERROR(AtomicFile(folder / std::string("f\0g", 3)), "f\\x00g\": expected a path, found a zero byte in it");
  std::filesystem::create_directory(folder / "d");
  EXPECT_ERROR(AtomicFile(folder / "d"), "d: expected a file, found a folder");
  AtomicFile file(folder / "late");
  std::filesystem::create_directory(folder / "late");
  EXPECT_ERROR(file.commit(), "cannot create");
}

/// What stands where a file is to be written is neither replaced nor followed; a stream is written into.
TEST(AtomicFile, LeavesLinksDevicesAndPipesInTheirPlace) {
  namespace fs = std::filesystem;
  const TemporaryFolder folder;
  write_file(folder / "elsewhere/mine", "mine");
  fs::create_symlink(folder / "elsewhere/mine", folder / "link");
  fs::create_symlink(folder / "nowhere", folder / "dangling");
  fs::create_symlink("/dev/null", folder / "null");
  for (const char* name : {"link", "dangling"})
    EXPECT_ERROR(AtomicFile(folder / name),
                 "expected a file, found a link: give the file that it points to, or remove it");
  EXPECT_EQ(read_file(folder / "elsewhere/mine"), "mine");
  EXPECT_FALSE(fs::exists(folder / "nowhere"));
  for (const std::string& path : {std::string("/dev/null"), folder / "null"}) {
    AtomicFile file(path);
    file.write("into nothing");
    file.commit();
    EXPECT_TRUE(fs::is_character_file(path)) << path;
  }
  EXPECT_TRUE(fs::is_symlink(folder / "null"));
  AtomicFile full("/dev/full");
  full.write("text");
  EXPECT_ERROR(full.commit(), "/dev/full: cannot write: No space left on device");
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_ERROR(AtomicFile{pipe}, "pipe: expected a pipe that is read from, found one without a reader");
  EXPECT_ERROR(JsonLines{pipe}, "pipe: expected a pipe that is read from, found one without a reader");
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  {
    AtomicFile file(pipe);
    file.write("through");
    file.commit();
    JsonLines log(pipe);
    log.write(JsonWriter().begin_object().end_object());
  }
  char text[16] = {};
  EXPECT_EQ(::read(reader, text, sizeof text), 10);
  EXPECT_STREQ(text, "through{}\n");
  ::close(reader);
  EXPECT_TRUE(fs::is_fifo(pipe));
  for (const auto& entry : fs::recursive_directory_iterator(folder.path()))
    EXPECT_EQ(entry.path().string().find("graven-tmp"), std::string::npos) << entry.path();
}

TEST(AtomicFile, RemovesWhatAKilledWriterLeftAndNothingElse) {
  namespace fs = std::filesystem;
  const TemporaryFolder folder;
  const std::string path = folder / "f";
  const pid_t child = ::fork();
  if (child == 0) {
    AtomicFile file(path);
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  ASSERT_TRUE(fs::exists(path + ".graven-tmp"));
  {
    AtomicFile first(path), second(path);  // the first one's is in use
    EXPECT_TRUE(fs::exists(path + ".graven-tmp.1"));
    first.write("first");
    second.write("second");
    second.commit();
    first.commit();
  }
  EXPECT_EQ(read_file(path), "first");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
  // A link of that name is nobody's that was killed.
  write_file(folder / "mine", "mine");
  fs::create_symlink(folder / "mine", path + ".graven-tmp");
  AtomicFile(path).commit();
  EXPECT_TRUE(fs::is_symlink(path + ".graven-tmp"));
  EXPECT_EQ(read_file(folder / "mine"), "mine");
}

TEST(StandardStreams, ClosedOnesAreFilledAndCannotBeUsed) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(STDIN_FILENO);
    ::close(STDOUT_FILENO);
    fill_standard_streams();
    char c = 'x';
    const int file = ::open("/dev/null", O_RDWR);
    // What is printed must not land in the file, and is not printed.
    ::_exit(file <= STDERR_FILENO                 ? 1
            : ::write(STDOUT_FILENO, &c, 1) != -1 ? 2
            : ::read(STDIN_FILENO, &c, 1) != -1   ? 3
                                                  : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  const int before = ::dup(STDOUT_FILENO);
  fill_standard_streams();
  const int after = ::dup(STDOUT_FILENO);
  EXPECT_EQ(after, before + 1) << "those that are open stay as they are";
  ::close(before);
  ::close(after);
}

TEST(MappedFile, MapsFilesOnly) {
  const TemporaryFolder folder;
  write_file(folder / "empty", "");
  EXPECT_EQ(MappedFile(folder / "empty").size(), 0U);
  EXPECT_ERROR(MappedFile("/dev/null"), "expected a file");
  write_file(folder / "f", "abc");
  MappedFile a(folder / "f");
  MappedFile b = std::move(a);
  EXPECT_EQ(b.size(), 3U);
  a = std::move(b);
  EXPECT_EQ(static_cast<char>(a.bytes()[2]), 'c');
}

TEST(MappedFile, WhatWasReleasedIsReadAgain) {
  const TemporaryFolder folder;
  std::string text(300'000, 'a');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7919 >> 3);
  write_file(folder / "f", text);
  const MappedFile file(folder / "f");
  const auto is_whole = [&] { return std::memcmp(file.bytes().data(), text.data(), text.size()) == 0; };
  EXPECT_TRUE(is_whole());
  for (const auto& [begin, size] : std::initializer_list<std::pair<std::size_t, std::size_t>>{
           {0, 300'000}, {5, 8192}, {4096, 4096}, {299'999, 1}, {7, 0}}) {
    file.release(file.bytes().subspan(begin, size));
    EXPECT_TRUE(is_whole()) << begin << " " << size;
  }
}

TEST(Paths, AreCutAndJoined) {
  EXPECT_EQ(parent_of("a/b/c"), "a/b");
  EXPECT_EQ(parent_of("a/b/"), "a");
  EXPECT_EQ(parent_of("c"), ".");
  EXPECT_EQ(parent_of("/c"), "/");
  EXPECT_EQ(parent_of("/"), "/");
  EXPECT_EQ(parent_of(""), ".");
  EXPECT_EQ(join("a", "b"), "a/b");
  EXPECT_EQ(join("a/", "b"), "a/b");
  EXPECT_EQ(join("", "b"), "b");
  EXPECT_EQ(join("a", "/b"), "/b");
  const TemporaryFolder folder;
  make_directories(folder / "x/y/z");
  make_directories(folder / "x/y/z/");
  write_file(folder / "x/f", "");
  EXPECT_EQ(list_directory(folder / "x"), (std::vector<std::string>{"f", "y"}));
  EXPECT_EQ(find_beside_program(folder / "x/f"), folder / "x/f");
  EXPECT_EQ(required_beside_program(folder / "x/f"), folder / "x/f");
  EXPECT_ERROR(remove_path(folder / "x"), "cannot remove");
  remove_path(folder / "nobody");
  EXPECT_EQ(find_beside_program("no such file at all"), "");
  EXPECT_ERROR(required_beside_program("nowhere"),
               "nowhere: expected this file beside the program, in the folder above it, ");
}

TEST(Sha256, OfTheStandard) {
  EXPECT_EQ(sha256({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256(as_span("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256(as_span("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(as_span(std::string(1000000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Topk, OrdersScores) {
  const double nan = std::nan("");
  const struct {
    std::vector<double> scores;
    std::int64_t k;
    std::vector<std::int64_t> expected;
  } cases[] = {
      {{1, 3, 2}, 2, {1, 2}},           {{1, 3, 2}, 5, {1, 2, 0}}, {{5, 5, 5}, 2, {0, 1}}, {{1, 2}, 0, {}}, {{}, 3, {}},
      {{nan, -1, nan, 4}, 3, {0, 2, 3}}};
  for (const auto& c : cases) {
    std::vector<std::int64_t> best(static_cast<std::size_t>(c.k));
    best.resize(
        static_cast<std::size_t>(topk(c.scores.data(), static_cast<std::int64_t>(c.scores.size()), c.k, best.data())));
    EXPECT_EQ(best, c.expected);
  }
}

TEST(Arena, IsAlignedAndZeroed) {
  ArenaPlan plan;
  EXPECT_EQ(plan.add(1), 0U);
  EXPECT_EQ(plan.add(65), 64U);
  EXPECT_EQ(plan.add(0), 192U);
  const Arena arena(plan.bytes());
  EXPECT_EQ(arena.bytes(), 192U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena.at(64)) % 64, 0U);
  EXPECT_EQ(arena.at<char>(0)[191], 0);
  try {
    const Arena arena(std::size_t{1} << 62);
    ADD_FAILURE() << "more than there is";
  } catch (const std::bad_alloc& error) {
    EXPECT_STREQ(error.what(), "out of memory: cannot allocate 4611686018427387904 bytes");
  }
}

TEST(Timings, MedianAndMinimum) {
  Timings timings(4);
  EXPECT_EQ(timings.median(), 0);
  for (const double t : {3.0, 1.0, 2.0}) timings.add(t);
  EXPECT_EQ(timings.median(), 2);
  EXPECT_EQ(timings.minimum(), 1);
  timings.add(4);
  EXPECT_EQ(timings.median(), 2.5);
  EXPECT_TRUE(timings.full());
  timings.add(100);
  EXPECT_EQ(timings.count(), 4U);
  EXPECT_EQ(clock_time(12.4), "0:12");
  EXPECT_EQ(clock_time(3723), "1:02:03");
  EXPECT_EQ(clock_time(-1), "0:00");
}

TEST(Comparison, PrintsOneLineATensor) {
  const TemporaryFolder folder;
  float recorded[4] = {1, -2, std::nanf(""), 0};
  double tolerance = 3e-5;
  const Variable variables[] = {{"logits", DType::f32, {2, 2}, recorded},
                                {"no_tolerance", DType::f32, {2, 2}, recorded},
                                {"tolerance.logits", DType::f64, {}, &tolerance}};
  save_variables(folder / "v.safetensors", variables);
  Comparison comparison(folder / "v.safetensors");
  float loaded[4] = {};
  comparison.load("logits", loaded, DType::f32, {2, 2});
  EXPECT_EQ(loaded[1], -2);
  EXPECT_ERROR(comparison.load("logits", loaded, DType::f32, {4}), "another type");
  EXPECT_ERROR(comparison.load("other", loaded, DType::f32, {4}), "missing: other");
  const auto check = [&](std::vector<float> computed) {
    testing::internal::CaptureStdout();
    const bool ok = comparison.check("logits", computed.data(), DType::f32, {2, 2});
    return std::pair(ok, testing::internal::GetCapturedStdout());
  };
  const float nan = std::nanf("");
  EXPECT_TRUE(check({1, -2, nan, 0}).first);
  const auto near = check({1, -2.00001F, nan, 0});
  EXPECT_TRUE(near.first);
  EXPECT_NE(near.second.find("OK, max diff 1e-05 of 3e-05"), std::string::npos) << near.second;
  EXPECT_FALSE(check({1, -2.00004F, nan, 0}).first);
  EXPECT_ERROR(comparison.check("no_tolerance", recorded, DType::f32, {2, 2}), "missing: tolerance.no_tolerance");
  EXPECT_FALSE(check({1, -2, 0, 0}).first) << "a number where NaN was recorded";
  const auto bad = check({1, nan, nan, 0});
  EXPECT_FALSE(bad.first);
  EXPECT_NE(bad.second.find("1 of 4 differ, the first at 1"), std::string::npos) << bad.second;
  testing::internal::CaptureStdout();
  EXPECT_EQ(comparison.finish(), 1);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "FAILED, 3 of 5 tensors\n");
}

}  // namespace
}  // namespace graven::runtime
