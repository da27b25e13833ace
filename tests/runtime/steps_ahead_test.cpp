// Training on a device: the next step is begun before the last one's loss is known, and nothing else differs.
#include <map>
#include <sstream>

#include "training.h"

namespace graven::runtime {
namespace {

namespace fs = std::filesystem;

/// "bbfbf": what was begun and finished, in order; "|" where the weights were asked for, and "e" where an evaluation
/// was made.
std::string order_of(const std::vector<MockTrainable::Note>& notes) {
  std::string order;
  for (const auto& n : notes) {
    if (n.what == "begin") order += 'b';
    if (n.what == "finish") order += 'f';
    if (n.what == "needed") order += '|';
    if (n.what == "evaluation") order += 'e';
  }
  return order;
}

TEST_F(Training, StepsAreBegunAheadOnADevice) {
  // 50 samples are 7 steps an epoch.
  const struct {
    const char* what;
    std::vector<std::string> options;
    std::string order;  ///< of the first epoch
  } cases[] = {
      {"as far as it goes", {}, "bbfbfbfbfbfbff"},
      {"each is logged", {"--log", "LOG"}, "bfbfbfbfbfbfbf"},
      {"some are", {"--log", "LOG", "--log-every", "3"}, "bbfbffbbfbffbf"},
      {"some are saved", {"--checkpoint-every", "4"}, "bbfbfbff|bbfbff"},
      {"some have parts", {"--accumulation-steps", "2"}, "bbfbfbfbfbfbff"},
      {"the run ends", {"--steps", "3"}, "bbfbff|"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.what);
    std::map<bool, std::string> saved, logged;
    for (const bool on_device : {false, true}) {
      const std::string name = on_device ? "device" : "processor";
      MockTrainable model({kFeatures}, kClasses, 8, true);
      model.description().accumulation_steps = 1;
      model.description().on_device = on_device;
      std::vector<MockTrainable::Note> notes;
      model.notes = &notes;
      std::vector<std::string> words = {"--epochs", "2", "--out", folder_ / name, "--overwrite"};
      for (const std::string& word : c.options) words.push_back(word == "LOG" ? folder_ / name + ".log" : word);
      fs::remove(std::string(folder_ / name + ".log"));
      const Result r = train(words, &model);
      ASSERT_EQ(r.status, 0) << r.error;
      if (on_device) {
        const std::string order = order_of(notes);
        EXPECT_EQ(order.substr(0, order.find('e')).substr(0, c.order.size()), c.order) << order;
        EXPECT_LE(model.most_under_way, 2u);
      }
      for (const std::string& checkpoint : list_checkpoints(folder_ / name))
        saved[on_device] +=
            read_file(checkpoint + "/weights.safetensors") + read_file(checkpoint + "/optimizer.safetensors");
      if (fs::exists(std::string(folder_ / name + ".log"))) {
        std::istringstream lines(read_file(folder_ / name + ".log"));
        for (std::string line; std::getline(lines, line);)
          if (line.find("\"event\":\"step\"") != std::string::npos) logged[on_device] += line;
      }
    }
    EXPECT_FALSE(saved[true].empty());
    EXPECT_EQ(saved[true], saved[false]);
    EXPECT_EQ(logged[true], logged[false]);
  }
}

TEST_F(Training, ALossThatIsNoNumberEndsARunAheadWithItsOwnStep) {
  MockTrainable model({kFeatures}, kClasses, 8, true);
  model.description().on_device = true;
  model.nan_at_step = 12;
  const Result r = train({"--checkpoint-every", "5"}, &model);
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.error.find("training: step 12: expected a finite loss, found NaN; the last checkpoint is "),
            std::string::npos)
      << r.error;
  EXPECT_NE(r.error.find("step-00000010"), std::string::npos) << r.error;
}

TEST_F(Training, NothingIsBegunAheadWhereTheNextStepAsksForTheLast) {
  for (const bool scales : {true, false}) {
    MockTrainable model({kFeatures}, kClasses, 8, true);
    model.description().on_device = true;
    model.description().scales_loss = scales;
    model.shows_numbers = !scales;
    ASSERT_EQ(train({"--epochs", "1", "--out", ""}, &model).status, 0);
    EXPECT_EQ(model.most_under_way, 0u) << scales;
  }
}

}  // namespace
}  // namespace graven::runtime
