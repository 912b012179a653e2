// SPDX-License-Identifier: Apache-2.0
//! File names with the time in them: `eve-%Y-%m-%d-%H.json`, as by strftime(3) in the C locale.
//!
//! As in Suricata, the name is made when the file is opened (at the start, at each `rotate-interval`, after
//! SIGHUP), by the wall clock, also over captures; text that is no conversion is unchanged. Unlike in
//! Suricata, the time is UTC, as in the events.

use core::fmt::Write as _;

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// A day and time in UTC.
struct Time {
    seconds: u64,
    year: u64,
    /// Month, from 1.
    month: u64,
    /// Day of the month, from 1.
    day: u64,
    /// Day of the year, from 1.
    day_of_year: u64,
    /// Day of the week; 0 is Sunday.
    weekday: u64,
}

impl Time {
    fn of(seconds: u64) -> Self {
        let days = seconds / 86_400;
        // Howard Hinnant's `civil_from_days`: years begin in March, in eras of 400 years.
        let since = days + 719_468;
        let (era, of_era) = (since / 146_097, since % 146_097);
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month + 2) / 5 + 1;
        let (month, year) = if month < 10 {
            (month + 3, year_of_era + era * 400)
        } else {
            (month - 9, year_of_era + era * 400 + 1)
        };
        let is_leap = (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400);
        // From March on counted from March; January and February come at the end of such a year.
        let day_of_year = if month > 2 { day_of_year + 60 + u64::from(is_leap) } else { day_of_year - 305 };
        Time { seconds, year, month, day, day_of_year, weekday: (days + 4) % 7 }
    }

    const fn hour(&self) -> u64 {
        self.seconds / 3600 % 24
    }

    const fn minute(&self) -> u64 {
        self.seconds / 60 % 60
    }

    const fn second(&self) -> u64 {
        self.seconds % 60
    }

    const fn hour_of_12(&self) -> u64 {
        match self.hour() % 12 {
            0 => 12,
            hour => hour,
        }
    }

    /// Year and week by ISO 8601: a week belongs to the year of its Thursday.
    fn iso_week(&self) -> (u64, u64) {
        let from_monday = (self.weekday + 6) % 7;
        let thursday = Time::of_day((self.seconds / 86_400 + 3).saturating_sub(from_monday));
        (thursday.year, (thursday.day_of_year - 1) / 7 + 1)
    }

    fn of_day(day: u64) -> Self {
        Time::of(day * 86_400)
    }

    /// Writes the value of a conversion; `false`: it is none.
    fn write(&self, conversion: char, out: &mut String) -> bool {
        let name = |list: &[&'static str], at: u64| {
            usize::try_from(at).ok().and_then(|at| list.get(at)).copied().unwrap_or("?")
        };
        let (weekday, month) = (name(&DAYS, self.weekday), name(&MONTHS, self.month - 1));
        let short = |name: &'static str| name.get(..3).unwrap_or(name);
        let (hour, minute, second) = (self.hour(), self.minute(), self.second());
        let yday = self.day_of_year - 1;
        // Writing into a text cannot fail.
        let _ = match conversion {
            'a' => write!(out, "{}", short(weekday)),
            'A' => write!(out, "{weekday}"),
            'b' | 'h' => write!(out, "{}", short(month)),
            'B' => write!(out, "{month}"),
            'c' => write!(
                out,
                "{} {} {:>2} {hour:02}:{minute:02}:{second:02} {}",
                short(weekday),
                short(month),
                self.day,
                self.year
            ),
            'C' => write!(out, "{:02}", self.year / 100),
            'd' => write!(out, "{:02}", self.day),
            'D' | 'x' => write!(out, "{:02}/{:02}/{:02}", self.month, self.day, self.year % 100),
            'e' => write!(out, "{:>2}", self.day),
            'F' => write!(out, "{}-{:02}-{:02}", self.year, self.month, self.day),
            'g' => write!(out, "{:02}", self.iso_week().0 % 100),
            'G' => write!(out, "{}", self.iso_week().0),
            'H' => write!(out, "{hour:02}"),
            'I' => write!(out, "{:02}", self.hour_of_12()),
            'j' => write!(out, "{:03}", self.day_of_year),
            'k' => write!(out, "{hour:>2}"),
            'l' => write!(out, "{:>2}", self.hour_of_12()),
            'm' => write!(out, "{:02}", self.month),
            'M' => write!(out, "{minute:02}"),
            'n' => writeln!(out),
            'p' => write!(out, "{}", if hour < 12 { "AM" } else { "PM" }),
            'P' => write!(out, "{}", if hour < 12 { "am" } else { "pm" }),
            'r' => write!(
                out,
                "{:02}:{minute:02}:{second:02} {}",
                self.hour_of_12(),
                if hour < 12 { "AM" } else { "PM" }
            ),
            'R' => write!(out, "{hour:02}:{minute:02}"),
            's' => write!(out, "{}", self.seconds),
            'S' => write!(out, "{second:02}"),
            't' => write!(out, "\t"),
            'T' | 'X' => write!(out, "{hour:02}:{minute:02}:{second:02}"),
            'u' => write!(out, "{}", if self.weekday == 0 { 7 } else { self.weekday }),
            'U' => write!(out, "{:02}", (yday + 7 - self.weekday) / 7),
            'V' => write!(out, "{:02}", self.iso_week().1),
            'w' => write!(out, "{}", self.weekday),
            'W' => write!(out, "{:02}", (yday + 7 - (self.weekday + 6) % 7) / 7),
            'y' => write!(out, "{:02}", self.year % 100),
            'Y' => write!(out, "{}", self.year),
            'z' => write!(out, "+0000"),
            'Z' => write!(out, "UTC"),
            '%' => write!(out, "%"),
            _ => return false,
        };
        true
    }
}

/// Expands the conversions of a pattern, which are those of strftime, for a time in seconds since 1970 (UTC).
pub fn expand(pattern: &str, seconds: u64) -> String {
    let time = Time::of(seconds);
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        match rest.next() {
            Some(conversion) => {
                if !time.write(conversion, &mut out) {
                    out.push('%');
                    out.push(conversion);
                }
            }
            None => out.push('%'),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_strftime() {
        // Expected: date(1) of GNU coreutils, `LC_ALL=C date -u -d @SECONDS +FORMAT`.
        for (seconds, expected) in [
            (0, "1970-01-01 00:00:00 Thu 001 00 00 01 1970 12 am  1"),
            (951_827_696, "2000-02-29 12:34:56 Tue 060 09 09 09 2000 12 pm 29"),
            (1_103_975_999, "2004-12-25 11:59:59 Sat 360 51 51 52 2004 11 am 25"),
            (1_104_537_600, "2005-01-01 00:00:00 Sat 001 00 00 53 2004 12 am  1"),
            (1_795_443_925, "2026-11-23 14:25:25 Mon 327 47 47 48 2026 02 pm 23"),
            (4_107_542_399, "2100-02-28 23:59:59 Sun 059 09 08 08 2100 11 pm 28"),
            (4_107_542_400, "2100-03-01 00:00:00 Mon 060 09 09 09 2100 12 am  1"),
        ] {
            assert_eq!(expand("%Y-%m-%d %H:%M:%S %a %j %U %W %V %G %I %P %e", seconds), expected);
        }
        assert_eq!(
            expand("%F %T %D %R %y %B %b %A %C %u %w %z %Z %s", 1_795_443_925),
            "2026-11-23 14:25:25 11/23/26 14:25 26 November Nov Monday 20 1 1 +0000 UTC 1795443925"
        );
        // As in glibc, text that is no conversion is unchanged.
        assert_eq!(expand("eve-%Y-%%-%Q-%N.json%", 0), "eve-1970-%-%Q-%N.json%");
    }
}
