//! How much memory Linux lets this process use: the machine's memory, the limits of a container, a
//! batch job or a slice, and `ulimit -v`. The limit of a control group also applies to all groups
//! below it, so every group from the process's own up to the root is read.

use std::path::{Path, PathBuf};

/// Bytes that can be allocated now without swapping.
pub fn available_bytes() -> Option<u64> {
    System::here().available()
}

/// The machine's memory, or the part of it that this process may use.
pub fn total_bytes() -> Option<u64> {
    System::here().total()
}

/// Bytes that this process holds and cannot give back.
pub fn held_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    kilobytes(status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?)
}

/// `  1234 kB`, in bytes.
fn kilobytes(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The folders to read from: the real ones, or a test's.
struct System {
    proc: PathBuf,
    groups: PathBuf,
}

impl System {
    fn here() -> System {
        System { proc: PathBuf::from("/proc"), groups: PathBuf::from("/sys/fs/cgroup") }
    }

    fn available(&self) -> Option<u64> {
        let rooms = self.limits().into_iter().map(|(limit, used)| limit.saturating_sub(used));
        rooms.chain(self.meminfo("MemAvailable:")).chain(self.address_room()).min()
    }

    fn total(&self) -> Option<u64> {
        let limits = self.limits().into_iter().map(|(limit, _)| limit);
        limits.chain(self.meminfo("MemTotal:")).min()
    }

    /// A line of `/proc/meminfo`, in bytes.
    fn meminfo(&self, name: &str) -> Option<u64> {
        let text = std::fs::read_to_string(self.proc.join("meminfo")).ok()?;
        kilobytes(text.lines().find_map(|line| line.strip_prefix(name))?)
    }

    /// The rest of the address space, if it has a limit (`ulimit -v`).
    fn address_room(&self) -> Option<u64> {
        let limits = std::fs::read_to_string(self.proc.join("self/limits")).ok()?;
        let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
        let limit: u64 = line.split_whitespace().next()?.parse().ok()?; // or "unlimited"
        let status = std::fs::read_to_string(self.proc.join("self/status")).ok()?;
        let used = kilobytes(status.lines().find_map(|line| line.strip_prefix("VmSize:"))?)?;
        Some(limit.saturating_sub(used))
    }

    /// Limit and use of every group that contains this process and has a limit.
    fn limits(&self) -> Vec<(u64, u64)> {
        let text = std::fs::read_to_string(self.proc.join("self/cgroup")).unwrap_or_default();
        let mut found = Vec::new();
        for line in text.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
                continue;
            };
            let (root, files) = match controllers {
                "" => (self.groups.clone(), VERSION_TWO),
                list if list.split(',').any(|name| name == "memory") => {
                    (self.groups.join("memory"), VERSION_ONE)
                }
                _ => continue,
            };
            let own = root.join(path.trim_start_matches('/'));
            // In a container the path may be the host's. The container's own root is read anyway.
            let groups = own.ancestors().take_while(|group| group.starts_with(&root));
            found.extend(groups.filter_map(|group| files.limit_and_use(group)));
        }
        found
    }
}

/// Names of a group's files.
#[derive(Clone, Copy)]
struct Files {
    limit: &'static str,
    used: &'static str,
    /// The line of `memory.stat` that counts file pages, which are dropped when memory is needed.
    cache: &'static str,
}

const VERSION_TWO: Files =
    Files { limit: "memory.max", used: "memory.current", cache: "inactive_file " };

const VERSION_ONE: Files = Files {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cache: "total_inactive_file ",
};

impl Files {
    /// A group's limit, if it has one, and the part of it in use that cannot be dropped.
    fn limit_and_use(&self, group: &Path) -> Option<(u64, u64)> {
        let limit = number(&group.join(self.limit))?;
        let used = number(&group.join(self.used)).unwrap_or(0);
        let stat = std::fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
        let line = stat.lines().find_map(|line| line.strip_prefix(self.cache));
        let cache = line.and_then(|number| number.trim().parse().ok()).unwrap_or(0);
        Some((limit, used.saturating_sub(cache)))
    }
}

/// A file with one number; `None` for `max`.
fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    /// Name, the process's groups, their files, and the available and total bytes.
    type Case<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], u64, u64);

    /// A machine of 64 GiB, 48 of them free, with files of its control groups.
    fn system(name: &str, cgroup: &str, files: &[(&str, &str)]) -> System {
        let folder = std::env::temp_dir().join(format!("fitgpt-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let write = |path: &str, content: &str| {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        };
        write("proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable:   50331648 kB\n");
        write("proc/self/cgroup", cgroup);
        for (path, content) in files {
            write(&format!("groups/{path}"), content);
        }
        System { proc: folder.join("proc"), groups: folder.join("groups") }
    }

    #[test]
    fn the_tightest_limit_counts_wherever_it_is_set() {
        let (eight, six) = ((8 * GIB).to_string(), (6 * GIB).to_string());
        let (three, one) = ((3 * GIB).to_string(), GIB.to_string());
        let cached = format!("anon 5\ninactive_file {}\nactive_file 7\n", 2 * GIB);
        let cases: [Case<'_>; 6] = [
            ("no-limit", "0::/\n", &[], 48 * GIB, 64 * GIB),
            ("max", "0::/\n", &[("memory.max", "max\n")], 48 * GIB, 64 * GIB),
            (
                "container",
                "0::/\n",
                &[("memory.max", &eight), ("memory.current", &three)],
                5 * GIB,
                8 * GIB,
            ),
            (
                "page-cache",
                "0::/\n",
                &[("memory.max", &eight), ("memory.current", &three), ("memory.stat", &cached)],
                7 * GIB,
                8 * GIB,
            ),
            (
                "slice",
                "0::/user.slice/job\n",
                &[
                    ("memory.max", "max"),
                    ("user.slice/memory.max", &six),
                    ("user.slice/memory.current", &three),
                    ("user.slice/job/memory.max", &eight),
                    ("user.slice/job/memory.current", &one),
                ],
                3 * GIB,
                6 * GIB,
            ),
            (
                "version-one",
                "5:cpu,cpuacct:/x\n4:memory:/job\n",
                &[
                    ("memory/job/memory.limit_in_bytes", &six),
                    ("memory/job/memory.usage_in_bytes", &one),
                    ("memory/memory.limit_in_bytes", "9223372036854771712"),
                ],
                5 * GIB,
                6 * GIB,
            ),
        ];
        for (name, cgroup, files, available, total) in cases {
            let system = system(name, cgroup, files);
            assert_eq!(system.available(), Some(available), "{name}");
            assert_eq!(system.total(), Some(total), "{name}");
            let _ = std::fs::remove_dir_all(system.proc.parent().unwrap());
        }
    }

    #[test]
    fn a_limit_on_the_address_space_counts() {
        let none = "Max address space         unlimited            unlimited            bytes\n";
        let some = "Max address space         3221225472           unlimited            bytes\n";
        let used = "Name:\tx\nVmPeak:\t 9 kB\nVmSize:\t 1048576 kB\n";
        for (name, limits, status, free) in [
            ("address-none", none, used, 48 * GIB),
            ("address-some", some, used, 2 * GIB),
            ("address-odd", "Max address space", used, 48 * GIB),
            ("address-unknown", some, "", 48 * GIB),
            ("address-over", some, "VmSize: 99999999 kB", 0),
        ] {
            let system = system(name, "0::/\n", &[]);
            std::fs::write(system.proc.join("self/limits"), limits).unwrap();
            std::fs::write(system.proc.join("self/status"), status).unwrap();
            assert_eq!(system.available(), Some(free), "{name}");
            let _ = std::fs::remove_dir_all(system.proc.parent().unwrap());
        }
    }

    #[test]
    fn the_system_says_what_can_be_had() {
        if cfg!(target_os = "linux") {
            let available = available_bytes().unwrap();
            assert!(available > 1 << 20 && available < 1 << 50, "{available}");
        }
    }
}
