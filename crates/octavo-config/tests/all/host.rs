//! The host of a machine whose programs run in a guest.

use crate::own_table::{resolve, resolve_text};
use octavo_config::{HostConfig, MachineConfig, TlbsHold};
use octavo_hw::WalkCaches;
use octavo_os::policy::Policies;
use octavo_types::Instructions;

fn machine(settings: &[&str]) -> MachineConfig {
    resolve("skylake", settings).unwrap_or_else(|error| panic!("{error}")).into_config()
}

fn error(settings: &[&str]) -> String {
    resolve("skylake", settings).expect_err("it is a machine").to_string()
}

#[test]
fn host_is_absent_until_configured() {
    assert_eq!(machine(&[]).host, None);
    assert!(!machine(&[]).to_json().contains("host"), "machines keep their hashes");
    let usual = machine(&["host=usual"]).host.unwrap();
    assert_eq!((&*usual.policy, usual.tlbs_hold), (HostConfig::OF_DESIGN, TlbsHold::Final));
    let tlb = usual.tlb.as_ref().unwrap();
    assert!(tlb.arrays["main"].geometry().is_ok());
    WalkCaches::<()>::new(&usual.walk_caches(), Instructions::PORTABLE).unwrap();
    let host = |settings| machine(settings).host;
    let small = host(&["host.memory.bytes=1GiB"]).unwrap();
    assert_eq!(small.memory.bytes, 1 << 30);
    assert_eq!(small.tlb, usual.tlb);
    assert_eq!(host(&["host.memory.bytes=1GiB", "host=usual"]), Some(small));
    assert_eq!(host(&["host=usual", "host=none"]), None);
    assert_eq!(host(&["host=none"]), None);
    assert_eq!(host(&["host.tlb=none", "host.walk_caches=none"]).unwrap().tlb, None);
}

#[test]
fn file_may_set_part_of_the_host() {
    let file = "extends = \"skylake\"\n[host]\npolicy = \"thp:max_ptes_none=0\"\n[host.tlb.main]\n\
                entries = 16\n";
    let settings = ["host.walk_caches.pde=none", "host.tlbs_hold=halves"];
    let resolved = resolve_text("mine.toml", file, &settings).unwrap();
    let host = resolved.config().host.clone().unwrap();
    assert_eq!(host.policy, "thp:max_ptes_none=0");
    assert!(matches!(host.own_policy(&Policies::default()), Ok(Some(_))));
    assert_eq!((host.tlb.unwrap().arrays["main"].entries, host.walk_caches.len()), (16, 2));
    assert_eq!(host.tlbs_hold, TlbsHold::Halves);
    for text in [resolved.toml(), &resolved.config().to_toml()] {
        let again = resolve_text::<&str>("again.toml", text, &[]).unwrap();
        assert_eq!(again.json(), resolved.json());
    }
    let without = resolve("skylake", &["host.tlb=none", "host.walk_caches=none"]).unwrap();
    for text in [without.toml(), &without.config().to_toml()] {
        let again = resolve_text::<&str>("again.toml", text, &[]).unwrap();
        assert_eq!(again.json(), without.json());
    }
}

#[test]
fn every_host_number_names_its_source() {
    let resolved = resolve("skylake", &["host=usual"]).unwrap();
    let host = resolved.toml().split_once("[host]").unwrap().1;
    for line in host.lines().filter(|line| line.contains(" = ")) {
        assert!(line.contains("  # "), "{line}");
    }
}

#[test]
fn invalid_values_are_rejected_with_one_sentence() {
    let policies: Vec<_> = Policies::default().iter().map(|policy| policy.name).collect();
    assert_eq!(
        error(&["host.policy=eagr"]),
        format!(
            "--set: host.policy = \"eagr\": give \"design\", each design's own, or another: no policy `eagr`: give \
             one of {}; did you mean `eager`?",
            policies.join(", ")
        )
    );
    assert_eq!(
        error(&["host.tlb=none", "host.tlbs_hold=halves"]),
        "--set: host.tlbs_hold = \"halves\": give \"final\", or the host a tlb: the other halves lie \
         there"
    );
    assert_eq!(
        error(&["host.tlbs_hold=finl"]),
        "--set: host.tlbs_hold = \"finl\": give final or halves; did you mean `final`?"
    );
    assert!(
        error(&["host.memory.bytes=5"]).starts_with("--set: host.memory.bytes = \"5\": give a mul")
    );
    assert_eq!(
        error(&["host.memory.fragmentation={kind=\"holes\",portion=2.0,fraction=0.5,\
                layout=\"clustered\",holes=\"movable\"}"]),
        "--set: host.memory.fragmentation.portion = 2: give a share from 0 to 1"
    );
    assert_eq!(
        error(&["host.page_table.levels=3"]),
        "--set: host.page_table.levels = 3: give a whole number from 4 to 5"
    );
    assert!(
        error(&["host.tlb.fill=victim"])
            .starts_with("--set: host.tlb.fill = \"victim\": give \"all\"")
    );
    assert!(
        error(&["host.walk_caches.pde.level=1"]).contains("give 2 to 4; level 1 has leaves only")
    );
    assert_eq!(
        error(&["host.polcy=thp"]),
        "--set: host.polcy: there is no such key; give policy, tlbs_hold, memory, page_table, tlb or \
         walk_caches; did you mean `policy`?"
    );
    assert!(
        error(&["host=yes"]).starts_with("--set: host = \"yes\": give a table"),
        "{}",
        error(&["host=yes"])
    );
}
