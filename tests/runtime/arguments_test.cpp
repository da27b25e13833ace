#include "runtime_min/arguments.h"

#include "fixture.h"

namespace graven::runtime {
namespace {

struct Options {
  std::int64_t epochs = 5;
  double lr = 0.1;
  bool shuffle = true;
  std::string data = "data", resume;
  std::vector<double> mean = {0.5, 0.25};
};

struct Parsed {
  Options options;
  bool ran = false;
  std::string help;
  bool epochs_given = false;
};

Parsed parse(const std::vector<const char*>& words) {
  Parsed p;
  Arguments a("prog", "Does things.");
  a.section("Training");
  a.integer("epochs", p.options.epochs, 0, 1000, "N", "passes");
  a.number("lr", p.options.lr, 0, 10, "X", "learning rate");
  a.flag("shuffle", p.options.shuffle, "another order");
  a.text("data", p.options.data, "PATH", "where it is");
  a.optional_text("resume", p.options.resume, "newest", "PATH", "go on");
  a.numbers("mean", p.options.mean, "X[,X...]", "means");
  a.refuse("threads", "it computes elsewhere");
  std::vector<const char*> argv = {"prog"};
  argv.insert(argv.end(), words.begin(), words.end());
  p.ran = a.parse(static_cast<int>(argv.size()), argv.data());
  p.help = a.help();
  p.epochs_given = a.given("epochs");
  return p;
}

TEST(Arguments, ReadsOptions) {
  const Parsed none = parse({});
  EXPECT_TRUE(none.ran);
  EXPECT_EQ(none.options.epochs, 5);
  EXPECT_FALSE(none.epochs_given);
  const Parsed p = parse({"--epochs", "7", "--lr=1e-3", "--no-shuffle", "--data", "a b", "--mean", "1,2.5,-3"});
  EXPECT_EQ(p.options.epochs, 7);
  EXPECT_TRUE(p.epochs_given);
  EXPECT_EQ(p.options.lr, 1e-3);
  EXPECT_FALSE(p.options.shuffle);
  EXPECT_EQ(p.options.data, "a b");
  EXPECT_EQ(p.options.mean, (std::vector<double>{1, 2.5, -3}));
  EXPECT_EQ(parse({"--resume"}).options.resume, "newest");
  EXPECT_EQ(parse({"--resume", "--epochs", "1"}).options.resume, "newest");
  EXPECT_EQ(parse({"--resume", "dir"}).options.resume, "dir");
  EXPECT_EQ(parse({"--data="}).options.data, "");
  EXPECT_TRUE(parse({"--no-shuffle", "--shuffle"}).options.shuffle) << "the last one counts";
}

TEST(Arguments, RefusesMistakes) {
  const struct {
    std::vector<const char*> words;
    const char* error;
  } cases[] = {
      {{"--epoch", "5"}, "unknown option \"--epoch\"; did you mean --epochs?"},
      {{"--something-else"}, "unknown option \"--something-else\"; --help lists them"},
      {{"--no-epochs"}, "unknown option"},
      {{"--threads", "2"}, "--threads: it computes elsewhere"},
      {{"--threads=2"}, "--threads: it computes elsewhere"},
      {{"file"}, "expected options, --name value, found \"file\""},
      {{"-x"}, "expected options"},
      {{"--epochs"}, "--epochs: expected a value, N, found the end of the line"},
      {{"--epochs", "--lr", "1"}, "--epochs: expected a value, N, found \"--lr\""},
      {{"--epochs", "five"}, "--epochs: expected a whole number from 0 to 1000, found \"five\""},
      {{"--epochs", "-1"}, "found \"-1\""},
      {{"--epochs", "1001"}, "found \"1001\""},
      {{"--epochs", "99999999999999999999"}, "whole number"},
      {{"--epochs", "1.5"}, "whole number"},
      {{"--epochs", "0x10"}, "whole number"},
      {{"--epochs", ""}, "whole number"},
      {{"--epochs", " 5"}, "whole number"},
      {{"--lr", "nan"}, "--lr: expected a number from 0 to 10, found \"nan\""},
      {{"--lr", "inf"}, "a number from 0"},
      {{"--lr", "-0.1"}, "a number from 0"},
      {{"--lr", "1e99"}, "a number from 0"},
      {{"--lr", "1e999"}, "a number from 0"},
      {{"--lr", "0.1x"}, "a number from 0"},
      {{"--shuffle=yes"}, "--shuffle: expected no value (--shuffle or --no-shuffle), found \"yes\""},
      {{"--mean", "1,,2"}, "numbers with commas between"},
      {{"--mean", "1,nan"}, "numbers with commas between"},
      {{"--mean", ""}, "numbers with commas between"},
  };
  for (const auto& c : cases) {
    EXPECT_ERROR(parse(c.words), c.error);
    EXPECT_THROW(parse(c.words), UsageError);
  }
}

TEST(Arguments, HelpNamesEveryDefault) {
  const std::string help = parse({}).help;
  for (const char* line : {"Does things.", "usage: prog [options]", "\nTraining\n", "--epochs N", "passes (default: 5)",
                           "learning rate (default: 0.1)", "--shuffle, --no-shuffle", "(default: on)",
                           "where it is (default: data)", "--resume [PATH]", "means (default: 0.5,0.25)", "--help"}) {
    EXPECT_NE(help.find(line), std::string::npos) << line << " is not in\n" << help;
  }
  testing::internal::CaptureStdout();
  EXPECT_FALSE(parse({"--epochs", "3", "--help"}).ran);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), help);
}

}  // namespace
}  // namespace graven::runtime
